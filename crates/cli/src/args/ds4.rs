//! The flags of ds4-server, so that its users need another program's name only.
//!
//! Those that mean the same here under the same name (`--ctx`, `--prefill-chunk`, `--batched-session`, `--kv-disk-dir`, …) are options
//! of ours like any other. This table has the rest: each is answered by one line when the server starts, or refused with the reason.
//! Source of the names: ds4-server's help.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// What was given of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ds4Args {
    /// What to say of each, in the table's order.
    pub(crate) notes: Vec<String>,
    /// The weights shall stay in the file.
    pub(crate) streams_weights: bool,
}

/// A flag of ds4-server.
struct Flag {
    name: &'static str,
    values: Values,
    here: Here,
}

/// What follows a flag.
#[derive(Clone, Copy)]
enum Values {
    None,
    One,
    Perhaps,
    Two,
}

/// What becomes of a flag here.
#[derive(Clone, Copy)]
enum Here {
    /// It says what is so anyway.
    Anyway,
    /// It is passed over, for this reason.
    Instead(&'static str),
    /// The same as `--weights file`, where the experts lie in it.
    Streams,
    /// It is the name of a backend.
    Backend,
    /// It is a percentage of which 100 alone can be had.
    Power,
    /// The server does not start, for this reason.
    Refused(&'static str),
}

const NO_GPU: &str = "this program computes on the processor";
const ONE_MACHINE: &str = "one process serves the whole model";
const NO_STEERING: &str = "activations are not steered";
const NO_DRAFTS: &str =
    "no drafts are made; answers are the same without them, at the speed of one token a step";
const STREAMS: &str =
    "experts stay in the file, and the system's page cache keeps those that are used (--weights)";
const WHOLE_BLOCKS: &str = "every whole block of a prompt or answer is stored once, whatever its length, and found again by its content";

use Here::{Anyway, Backend, Instead, Power, Refused, Streams};
use Values::{None as Nothing, One, Perhaps, Two};

const FLAGS: &[Flag] = &[
    flag("cpu", Nothing, Anyway),
    flag("backend", One, Backend),
    flag("metal", Nothing, Refused(NO_GPU)),
    flag("cuda", Nothing, Refused(NO_GPU)),
    flag("rocm", Nothing, Refused(NO_GPU)),
    flag("gpu-vram", One, Refused(NO_GPU)),
    flag("gpu-devices", One, Refused(NO_GPU)),
    flag("cuda-tensor-parallel", Nothing, Refused(NO_GPU)),
    flag(
        "quality",
        Nothing,
        Instead("there is one arithmetic here, whatever runs beside a request; nothing to choose"),
    ),
    flag(
        "warm-weights",
        Nothing,
        Instead(
            "weights that fit memory are read at the start anyway; --weights memory insists on it",
        ),
    ),
    flag("power", One, Power),
    flag("vision", One, Refused("images are not read")),
    flag("ssd-streaming", Nothing, Streams),
    flag("ssd-streaming-cold", Nothing, Streams),
    flag("ssd-streaming-cache-experts", One, Streams),
    flag("ssd-streaming-full-layers", One, Streams),
    flag("ssd-streaming-preload-experts", One, Streams),
    flag(
        "simulate-used-memory",
        One,
        Refused("a memory limit on the process does this, such as systemd-run -p MemoryMax=…"),
    ),
    flag("mtp", Perhaps, Instead(NO_DRAFTS)),
    flag("mtp-model", One, Instead(NO_DRAFTS)),
    flag("mtp-draft", One, Instead(NO_DRAFTS)),
    flag("mtp-margin", One, Instead(NO_DRAFTS)),
    flag("mtp-timing", Nothing, Instead(NO_DRAFTS)),
    flag("mtp-exact-sampling", Nothing, Instead(NO_DRAFTS)),
    flag("dspark", Nothing, Instead(NO_DRAFTS)),
    flag("dspark-confidence", One, Instead(NO_DRAFTS)),
    flag("dspark-strict", Nothing, Instead(NO_DRAFTS)),
    flag("dir-steering-file", One, Refused(NO_STEERING)),
    flag("dir-steering-ffn", One, Refused(NO_STEERING)),
    flag("dir-steering-attn", One, Refused(NO_STEERING)),
    flag("dir-steering-policy", One, Refused(NO_STEERING)),
    flag("role", One, Refused(ONE_MACHINE)),
    flag("layers", One, Refused(ONE_MACHINE)),
    flag("listen", Two, Refused(ONE_MACHINE)),
    flag("coordinator", Two, Refused(ONE_MACHINE)),
    flag("tensor-parallel", Nothing, Refused(ONE_MACHINE)),
    flag("transport", One, Refused(ONE_MACHINE)),
    flag("rdma-device", One, Refused(ONE_MACHINE)),
    flag("rdma-gid-index", One, Refused(ONE_MACHINE)),
    flag("dist-prefill-chunk", One, Refused(ONE_MACHINE)),
    flag("dist-prefill-window", One, Refused(ONE_MACHINE)),
    flag("dist-activation-bits", One, Refused(ONE_MACHINE)),
    flag("dist-replay-check", Nothing, Refused(ONE_MACHINE)),
    flag(
        "think-budget-message",
        One,
        Instead(
            "a budget that is used up ends reasoning by the model's own tokens, without a message",
        ),
    ),
    flag("kv-cache-min-tokens", One, Instead(WHOLE_BLOCKS)),
    flag("kv-cache-cold-max-tokens", One, Instead(WHOLE_BLOCKS)),
    flag(
        "kv-cache-continued-interval-tokens",
        One,
        Instead(WHOLE_BLOCKS),
    ),
    flag("kv-cache-boundary-trim-tokens", One, Instead(WHOLE_BLOCKS)),
    flag("kv-cache-boundary-align-tokens", One, Instead(WHOLE_BLOCKS)),
    flag("kv-cache-prompt-end-min-tokens", One, Instead(WHOLE_BLOCKS)),
    flag("rewind-point-min-tokens", One, Instead(WHOLE_BLOCKS)),
    // A file of other formats is another model.
    flag("kv-cache-reject-different-quant", Nothing, Anyway),
    flag(
        "disable-exact-dsml-tool-replay",
        Nothing,
        Instead("answers are always repeated as they were sampled"),
    ),
    flag(
        "tool-memory-max-ids",
        One,
        Instead("answers are kept for later prompts within 64 MB"),
    ),
];

const fn flag(name: &'static str, values: Values, here: Here) -> Flag {
    Flag { name, values, here }
}

impl Flag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).hide(true);
        match self.values {
            Values::None => arg.action(ArgAction::Count),
            // Of several, ds4-server takes the last.
            Values::One => arg.action(ArgAction::Append),
            Values::Perhaps => arg.action(ArgAction::Append).num_args(0..=1),
            Values::Two => arg.action(ArgAction::Append).num_args(2),
        }
    }

    /// The last of its values.
    fn value<'a>(&self, given: &'a ArgMatches) -> &'a str {
        let values = given.get_many::<String>(self.name);
        values.and_then(Iterator::last).map_or("", String::as_str)
    }

    fn refuse(&self, why: &str) -> Error {
        let text = format!("--{} cannot be had here: {why}\n", self.name);
        Error::raw(ErrorKind::InvalidValue, text)
    }

    /// Adds what the flag, which was `given`, means to `args`.
    fn take(&self, given: &ArgMatches, args: &mut Ds4Args) -> Result<(), Error> {
        let mut note = |text: &str| args.notes.push(format!("--{}: {text}", self.name));
        match self.here {
            Anyway => {}
            Instead(why) => note(why),
            Streams => {
                note(STREAMS);
                args.streams_weights = true;
            }
            Backend if self.value(given) == "cpu" => {}
            Backend => return Err(self.refuse(NO_GPU)),
            Power => match self.value(given).parse() {
                Ok(100) => {}
                Ok(1..=99_u8) => note("not limited; --threads leaves cores to others"),
                _ => return Err(self.refuse("give a percentage, 1 to 100")),
            },
            Refused(why) => return Err(self.refuse(why)),
        }
        Ok(())
    }
}

impl Args for Ds4Args {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Flag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ds4Args {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, Error> {
        let is_given =
            |flag: &&Flag| given.value_source(flag.name) == Some(ValueSource::CommandLine);
        let mut args = Self::default();
        for flag in FLAGS.iter().filter(is_given) {
            flag.take(given, &mut args)?;
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
