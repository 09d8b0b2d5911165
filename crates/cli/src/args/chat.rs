//! Options of the commands that speak to a running server or of the program itself.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::{ComputeArgs, EngineArgs};
use crate::models::ModelRef;
use crate::peer::USUAL;

/// Options of `chat`.
#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    /// Server to talk to [default: http://127.0.0.1:8000 if one answers there, else one started for this conversation]
    #[arg(value_name = "URL", conflicts_with = "model")]
    pub(crate) url: Option<String>,
    /// Start a server with this model: GGUF file, hf:owner/repo/file.gguf, or a name that `andante pull --list` shows
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<ModelRef>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Key for the server [default: the environment variable ANDANTE_API_KEY]
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
    /// System prompt
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// Most tokens of an answer [default: the server's]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tokens: Option<u32>,
    /// Randomness; 0 always takes the likeliest token [default: the server's]
    #[arg(long)]
    pub(crate) temperature: Option<f32>,
    /// Start of the random numbers, to repeat an answer
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// Options of `health`.
#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// The server
    #[arg(value_name = "URL", default_value = USUAL)]
    pub(crate) url: String,
}

/// Options of `top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// The server
    #[arg(value_name = "URL", default_value = USUAL)]
    pub(crate) url: String,
    /// Key for the server [default: the environment variable ANDANTE_API_KEY]
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
}

/// Options of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Options of `manual`.
#[derive(Args, Debug)]
pub(crate) struct ManualArgs {
    /// Folder for the pages; made if it is not there
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
