//! The command line: every option, its meaning and its default.

mod chat;
mod ds4;
mod kv;
mod load;
mod probe;
mod quantize;
mod serve;
mod simulate;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use andante_text::Dialect;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::models::{DEFAULT_MODEL, ModelRef};

pub(crate) use chat::{ChatArgs, CompletionsArgs, HealthArgs, ManualArgs, TopArgs};
pub(crate) use ds4::Ds4Args;
pub(crate) use kv::{KeyFile, KvCommand, KvDiskArgs};
pub(crate) use load::{LoadArgs, SloArgs};
pub(crate) use probe::{ProbeArgs, StallArgs, TenantArgs};
pub(crate) use quantize::{QuantizeArgs, QuantizeType};
pub(crate) use serve::{AccessArgs, ConfigCommand, LogFormat, ServeArgs, TenantFrom};
pub(crate) use simulate::{Profile, SchedulerArgs, SimulateArgs};

/// A local LLM inference server that keeps every answer flowing.
#[derive(Debug, Parser)]
#[command(name = "andante", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP
    Serve(Box<ServeArgs>),
    /// Look at the settings of `serve`
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Answer one prompt in the terminal
    Run(RunArgs),
    /// Talk in the terminal, with a server that runs or one of its own
    Chat(ChatArgs),
    /// Fetch a model and print its path
    Pull(PullArgs),
    /// Show what is in a model file
    Inspect(InspectArgs),
    /// Store a model of 16- or 32-bit weights in fewer bits
    Quantize(QuantizeArgs),
    /// Print the token ids of a text
    Tokens(TokensArgs),
    /// Write the logits of given tokens to a file, for comparing runtimes
    Logits(LogitsArgs),
    /// Measure prompt and generation speed
    Bench(BenchArgs),
    /// Measure how well a model predicts a text, by llama-perplexity's rules
    Perplexity(PerplexityArgs),
    /// Measure what clients of any OpenAI-compatible server see: stalls, waiting times, shares
    Probe(ProbeArgs),
    /// Look into a folder of stored KV, check it, make it smaller
    #[command(subcommand)]
    Kv(KvCommand),
    /// Replay a trace of requests, or a recorded run, under any policy in virtual time
    Simulate(SimulateArgs),
    /// Watch a server: who gets which step, rates, waits
    Top(TopArgs),
    /// Say whether a server is ready: ends with an error when it is not
    Health(HealthArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write manual pages into a folder
    Manual(ManualArgs),
}

/// Which model, and how it is computed.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// GGUF file, hf:owner/repo/file.gguf, or a name that `andante pull --list` shows
    #[arg(short, long, value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub(crate) model: ModelRef,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

/// How a model is computed.
#[derive(Args, Clone, Debug)]
pub(crate) struct ComputeArgs {
    /// Threads that compute [default: one for each core]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Keep each of these threads to a core, for machines that do little else
    #[arg(long)]
    pub(crate) bind_threads: bool,
    /// Number format of the KV cache
    #[arg(long, value_enum, default_value_t = KvType::F16)]
    pub(crate) kv_type: KvType,
    /// Where weights are while they are used: laid out in memory, or in the file
    #[arg(long, value_enum, default_value_t = Weights::Auto)]
    pub(crate) weights: Weights,
}

/// Where weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weights {
    /// In memory if they fit what is free; else those of experts in the file; else all
    Auto,
    Memory,
    /// Those of experts in the file, of which a step reads the few that it chooses, the others in memory
    ExpertsInFile,
    /// Nothing is loaded, and every step reads the file: slower, and possible with any size
    File,
}

/// Number format of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvType {
    /// 16 bits, exact to 11
    F16,
    /// 16 bits, exact to 8
    Bf16,
    /// 8.5 bits: 8 of each value, a scale for 32
    #[value(name = "q8_0")]
    Q8_0,
    /// 32 bits
    F32,
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(andante_compute::KvType::from(*self).name())
    }
}

impl From<KvType> for andante_compute::KvType {
    fn from(kv_type: KvType) -> Self {
        match kv_type {
            KvType::F16 => Self::F16,
            KvType::Bf16 => Self::BF16,
            KvType::Q8_0 => Self::Q8_0,
            KvType::F32 => Self::F32,
        }
    }
}

/// Room and fairness, the same for `serve` and `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArgs {
    /// Tokens that one session may hold, prompt and answer together [default: the model's, at most 8192]
    #[arg(short, long, value_name = "TOKENS")]
    pub(crate) ctx: Option<u32>,
    /// Sessions whose full context is reserved in memory
    #[arg(
        long,
        visible_alias = "batched-session",
        value_name = "N",
        default_value_t = 4
    )]
    pub(crate) sessions: u32,
    /// Sequences computed at once; they share the memory of the sessions [default: as many as sessions]
    #[arg(long, alias = "max-active-requests", value_name = "N")]
    pub(crate) max_active: Option<u32>,
    /// Which promise yields when not all can be kept
    #[arg(long, value_enum, default_value_t = Profile::Interactive)]
    pub(crate) profile: Profile,
    /// Longest step, in milliseconds, while an answer is being generated; `auto` is 100, or four steps of an answer alone
    /// on a machine where one takes more than 25
    #[arg(long, value_name = "MS", default_value_t = MaxStall::Auto)]
    pub(crate) max_stall_ms: MaxStall,
    /// Percent of the time kept for answers while prompts wait [default: 0 with --mode mix, 50 with hand-off]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=95))]
    pub(crate) decode_share: Option<u32>,
    /// Longest step, in milliseconds, while only prompts are processed
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub(crate) max_idle_ms: u32,
    /// Most prompt tokens in a step
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    pub(crate) prefill_chunk: u32,
    /// Most prompt tokens in a step while an answer is being generated [default: as many as --max-stall-ms allows]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) mixed_prefill_quantum: Option<u32>,
    /// Whether prompts and answers share a step or take turns
    #[arg(long, value_enum, default_value_t = Mode::Mix)]
    pub(crate) mode: Mode,
    /// Requests that may wait; more are refused
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_queue: u32,
    /// How the model writes tool calls and reasoning [default: what its chat template says]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Dialect::names()))]
    pub(crate) dialect: Option<String>,
    /// Chat template in Jinja to use instead of the model file's
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template_file: Option<PathBuf>,
    /// Write conversations as DeepSeek V4's own code does, in the words of this file; used where a DeepSeek V4 file has no
    /// template, with our own words
    #[arg(long, value_name = "FILE", conflicts_with = "chat_template_file")]
    pub(crate) chat_prose: Option<PathBuf>,
    /// The same, in one of the ways in which its implementations part; repeatable
    #[arg(
        long,
        value_name = "NAME=WAY",
        conflicts_with = "chat_template_file",
        long_help = chat_choices()
    )]
    pub(crate) chat_choice: Vec<String>,
}

/// What `--chat-choice` may be.
fn chat_choices() -> String {
    let mut help = String::from(
        "Write conversations as DeepSeek V4's own code does, in one of the ways in which its implementations part; \
         repeatable. The first way of each is the official one:",
    );
    for (name, ways) in andante_text::choices() {
        help += &format!("\n  {name}={}", ways.join("|"));
    }
    help
}

/// How hidden states become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pooling {
    /// Their mean
    Mean,
    /// The last token's
    Last,
}

impl Pooling {
    fn parse(name: &str) -> Result<Self, String> {
        if name == "cls" {
            let why = "the first token knows nothing of the others in models that look back only";
            return Err(format!("{why}; mean and last do"));
        }
        Self::from_str(name, false).map_err(|_| "it is mean or last".into())
    }
}

impl From<Pooling> for andante_engine::Pooling {
    fn from(pooling: Pooling) -> Self {
        match pooling {
            Pooling::Mean => Self::Mean,
            Pooling::Last => Self::Last,
        }
    }
}

/// How a step is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One step carries all answers and a piece of prompt
    Mix,
    /// Steps of prompt and steps of answers take turns
    HandOff,
}

impl From<Mode> for andante_sched::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Mix => Self::Mix,
            Mode::HandOff => Self::HandOff,
        }
    }
}

/// The stall bound that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxStall {
    /// What suits the machine.
    Auto,
    /// So many milliseconds.
    Ms(u32),
}

impl FromStr for MaxStall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(ms) if ms > 0 => Ok(Self::Ms(ms)),
                _ => Err("give milliseconds, at least 1, or auto".to_owned()),
            },
        }
    }
}

impl fmt::Display for MaxStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Ms(ms) => ms.fmt(f),
        }
    }
}

/// Options of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// What to ask [default: what standard input holds]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// System prompt
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Most tokens of an answer
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tokens: Option<u32>,
    /// Randomness; 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.8)]
    pub(crate) temperature: f32,
    /// Start of the random numbers, to repeat an answer
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Say on standard error how long everything took and how much memory
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Options of `pull`.
#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// A name, or hf:owner/repo/file.gguf
    #[arg(default_value = DEFAULT_MODEL)]
    pub(crate) model: ModelRef,
    /// List the models known by name
    #[arg(long)]
    pub(crate) list: bool,
}

/// Options of `inspect`.
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// GGUF file, hf:owner/repo/file.gguf, or a name
    #[arg(default_value = DEFAULT_MODEL)]
    pub(crate) model: ModelRef,
    /// Show every tensor and whole metadata values
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Tokens of context to say the memory for; what the model was trained for by default
    #[arg(long, value_name = "TOKENS")]
    pub(crate) ctx: Option<u32>,
    /// Sessions to say the memory for
    #[arg(long, default_value_t = 1)]
    pub(crate) sessions: u32,
    /// Measure how fast this machine reads memory, and say how fast the model could generate
    #[arg(long)]
    pub(crate) speed: bool,
}

/// Options of `tokens`.
#[derive(Args, Debug)]
pub(crate) struct TokensArgs {
    /// The text; `-` reads standard input
    pub(crate) text: String,
    /// GGUF file, hf:owner/repo/file.gguf, or a name
    #[arg(short, long, default_value = DEFAULT_MODEL)]
    pub(crate) model: ModelRef,
    /// Read control tokens in the text as control tokens, as in a template's own text
    #[arg(long)]
    pub(crate) special: bool,
    /// Show each token's text beside its id
    #[arg(long)]
    pub(crate) pieces: bool,
}

/// Options of `logits`.
#[derive(Args, Debug)]
pub(crate) struct LogitsArgs {
    /// File of token ids, little-endian 32-bit integers
    pub(crate) tokens: PathBuf,
    /// File to write: little-endian 32-bit floats, one row of the vocabulary's size per position
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Positions whose logits are written, e.g. `0,5,10-19`; `last`; `all`
    #[arg(long, default_value = "last")]
    pub(crate) positions: String,
    /// Compute with dequantised weights and 32-bit floats throughout
    #[arg(long)]
    pub(crate) reference: bool,
    /// Tokens per step
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) chunk: u32,
}

/// Options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Prompt lengths
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "512")]
    pub(crate) n_prompt: Vec<u32>,
    /// Generation lengths
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "128")]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens already in the context before the measured ones
    #[arg(short = 'd', long, value_delimiter = ',', default_value = "0")]
    pub(crate) n_depth: Vec<u32>,
    /// Sequences generated at once
    #[arg(short = 'b', long, value_delimiter = ',', default_value = "1")]
    pub(crate) batch: Vec<u32>,
    /// Measured repetitions
    #[arg(short = 'r', long, default_value_t = 3)]
    pub(crate) repetitions: u32,
    /// Do not measure what memory and instructions allow, which takes two seconds and 2 GiB
    #[arg(long)]
    pub(crate) no_ceiling: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `perplexity`.
#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    /// GGUF file, hf:owner/repo/file.gguf, or a name that `andante pull --list` shows
    #[arg(value_name = "FILE", default_value = DEFAULT_MODEL)]
    pub(crate) model: ModelRef,
    /// The text, UTF-8
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) file: PathBuf,
    /// Tokens of a context; those of its second half are scored
    #[arg(short, long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    pub(crate) ctx: u32,
    /// Most contexts [default: as many as the text fills]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) chunks: Option<u32>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
    /// Compute with dequantised weights and 32-bit floats throughout
    #[arg(long)]
    pub(crate) reference: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn fairness_has_its_options() {
        let line = "andante serve --max-stall-ms 250 --decode-share 40 --profile strict --max-active 8 --tenant-sessions 2 \
                    --tenant-weight big=2.5 --tenant-weight a=b=1 --tenant-from key,header --queue-timeout-s 60";
        let Command::Serve(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("not serve")
        };
        assert_eq!(args.engine.max_stall_ms, MaxStall::Ms(250));
        assert_eq!(args.tenant_weight[0], ("big".to_owned(), 2500));
        assert_eq!(args.tenant_weight[1], ("a=b".to_owned(), 1000));
        assert_eq!(args.tenant_from.as_ref().map(Vec::len), Some(2));
        for wrong in [
            "--max-stall-ms 0",
            "--max-stall-ms soon",
            "--decode-share 100",
            "--tenant-weight big",
            "--tenant-weight big=0",
            "--tenant-weight big=-1",
            "--tenant-weight big=inf",
        ] {
            let line = format!("andante serve {wrong}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }
}
