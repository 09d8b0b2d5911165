//! Options of `simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{LoadArgs, Mode, SloArgs};
use crate::commands::simulate::policy::Choice;

/// Options of `simulate`.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Trace: CSV with TIMESTAMP,ContextTokens,GeneratedTokens, JSON lines with timestamp, input_length, output_length and
    /// hash_ids, a timeline as GET /timeline gives and the page's schedule keeps it, or a scheduling log of `andante serve --record`
    pub(crate) trace: PathBuf,
    /// ours, prefill-first, decode-first, alternate or mixed; `mixed:512` gives the chunk in tokens, `ours:60` the stall
    /// bound in ms [default: ours, prefill-first:8192, mixed:2048 and mixed:512, or what a log or a timeline recorded]
    #[arg(short, long, value_name = "POLICY", value_delimiter = ',')]
    pub(crate) policy: Vec<Choice>,
    /// Repeat the recorded run of a scheduling log and compare every plan, even if policies are given
    #[arg(long)]
    pub(crate) replay: bool,
    /// Ours: write the scheduling log of its last run into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw steps, gaps and TTFT against length into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) slo: SloArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,
}

/// What a step costs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// Cost model: a100, or a JSON file with decode_us, prefill_us, mixed_us, token_us, attend_us, context_us and row_us
    /// [default: a100, or what a timeline's server had fitted]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cost: Option<String>,
    /// Take the cost model that this running server has fitted
    #[arg(long, value_name = "URL", conflicts_with = "cost")]
    pub(crate) cost_from: Option<String>,
    /// Let steps deviate from it at random by up to so many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..100))]
    pub(crate) noise: u32,
    /// Start of the random numbers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seed: u64,
    /// Let our scheduler learn the costs, as a server does, instead of knowing them
    #[arg(long)]
    pub(crate) fit: bool,
}

/// How the policies are set.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduler")]
pub(crate) struct SchedulerArgs {
    /// Sequences computed at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) slots: u32,
    /// Chunk of the other policies in tokens, where it is not given with the policy
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) chunk: u32,
    /// Ours: longest step while an answer is being generated
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub(crate) max_stall_ms: u32,
    /// Ours: longest step while only prompts are processed
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub(crate) max_idle_ms: u32,
    /// Ours: fewest prompt tokens in a step that has any
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    pub(crate) min_chunk: u32,
    /// Ours: most prompt tokens in a step
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    pub(crate) prefill_chunk: u32,
    /// Ours: whether prompts and answers share a step or take turns
    #[arg(long, value_enum, default_value_t = Mode::Mix)]
    pub(crate) mode: Mode,
    /// Ours: what matters most
    #[arg(long, value_enum, default_value_t = Profile::Interactive)]
    pub(crate) profile: Profile,
    /// Ours: percent of the time kept for answers while prompts wait [default: 0 with --mode mix, 50 with hand-off]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=95))]
    pub(crate) decode_share: Option<u32>,
    /// Ours: prompts take over what others computed, where the trace tells what they share
    #[arg(long)]
    pub(crate) cache: bool,
    /// Ours: tokens of KV memory, cached prefixes included [default: what the longest requests in all slots need]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) kv_tokens: Option<u64>,
}

/// What a scheduler is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Answers never stall, prompts never starve
    Interactive,
    /// Throughput first
    Batch,
    /// The stall bound holds even where prompts then crawl
    Strict,
}

impl From<Profile> for andante_sched::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Interactive => Self::Interactive,
            Profile::Batch => Self::Batch,
            Profile::Strict => Self::Strict,
        }
    }
}
