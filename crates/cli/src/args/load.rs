//! Options of all commands that take a trace: which requests come and when, and what is good enough for them.

use clap::Args;

/// Which of the trace's requests come, and when; they apply in this order.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Only this many requests of the trace, the first ones
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Leave out requests whose prompts have more tokens
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_prompt: Option<u32>,
    /// Factor on the times between requests; 0.5 sends twice as fast, 0 all at once
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_scale)]
    pub(crate) time_scale: f64,
}

/// A request is served well when both hold.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Goodput")]
pub(crate) struct SloArgs {
    /// Longest wait for a first token, in milliseconds, that is still good
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub(crate) slo_ttft_ms: u32,
    /// Longest time between two tokens, in milliseconds, that is still good
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub(crate) slo_gap_ms: u32,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|scale| (0.0..=1e6).contains(scale))
        .ok_or_else(|| "give a number from 0 to 1000000".to_owned())
}
