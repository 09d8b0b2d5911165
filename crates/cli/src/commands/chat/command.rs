//! The commands of a conversation: lines that begin with `/`.

use std::path::PathBuf;
use std::str::FromStr;

use super::settings::Change;

/// What a line asks for that is no question.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    Help,
    New,
    Retry,
    Edit,
    Undo,
    Show,
    Set(Change),
    Save(PathBuf),
    Load(PathBuf),
    Quit,
}

/// Every command with what it takes and does, as `/help` shows them.
pub(super) const COMMANDS: [(&str, &str, &str); 14] = [
    ("/help", "", "this list"),
    ("/new", "", "begin a new conversation"),
    ("/retry", "", "answer the last question again"),
    ("/edit", "", "take the last question back and change it"),
    ("/undo", "", "forget the last question and its answer"),
    ("/show", "", "what was said so far"),
    (
        "/system",
        "[TEXT]",
        "what the model is told before everything; without TEXT nothing",
    ),
    (
        "/temperature",
        "[T]",
        "randomness, 0 to 2; without T the server's own",
    ),
    ("/tokens", "[N]", "most tokens of an answer"),
    ("/seed", "[N]", "start of the random numbers"),
    (
        "/think",
        "[EFFORT]",
        "none, minimal, low, medium, high; without EFFORT the model's own",
    ),
    ("/stats", "on|off", "say tokens and speed after each answer"),
    (
        "/save FILE, /load FILE",
        "",
        "keep the conversation, or go on with one (JSON)",
    ),
    ("/quit", "", "end, as Ctrl-D does"),
];

/// The names alone, for completion.
pub(super) const NAMES: [&str; 15] = [
    "/edit",
    "/help",
    "/load",
    "/new",
    "/quit",
    "/retry",
    "/save",
    "/seed",
    "/show",
    "/stats",
    "/system",
    "/temperature",
    "/think",
    "/tokens",
    "/undo",
];

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

impl Command {
    /// The command of a line; none where it is a question. `//` begins a question that begins with `/`.
    pub(super) fn parse(line: &str) -> Option<Result<Self, String>> {
        if !line.starts_with('/') || line.starts_with("//") || line.contains('\n') {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some(Self::named(name, rest.trim()))
    }

    fn named(name: &str, rest: &str) -> Result<Self, String> {
        let text = || (!rest.is_empty()).then(|| rest.to_owned());
        let file = || match rest {
            "" => Err(format!("{name} needs a file")),
            path => Ok(PathBuf::from(path)),
        };
        let command = match name {
            "/system" => Self::Set(Change::System(text())),
            "/temperature" => {
                let temperature: Option<f32> = number(name, rest)?;
                if temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
                    return Err("the temperature is a number from 0 to 2".to_owned());
                }
                Self::Set(Change::Temperature(temperature))
            }
            "/tokens" => Self::Set(Change::MaxTokens(number(name, rest)?)),
            "/seed" => Self::Set(Change::Seed(number(name, rest)?)),
            "/think" if rest.is_empty() || EFFORTS.contains(&rest) => {
                Self::Set(Change::Effort(text()))
            }
            "/think" => return Err(format!("the effort is one of {}", EFFORTS.join(", "))),
            "/stats" => match rest {
                "on" | "" => Self::Set(Change::Stats(true)),
                "off" => Self::Set(Change::Stats(false)),
                _ => return Err("/stats on, or /stats off".to_owned()),
            },
            "/save" => Self::Save(file()?),
            "/load" => Self::Load(file()?),
            _ if !rest.is_empty() => {
                return Err(format!("{name} takes nothing; /help lists the commands"));
            }
            "/help" | "/?" => Self::Help,
            "/new" | "/clear" => Self::New,
            "/retry" => Self::Retry,
            "/edit" => Self::Edit,
            "/undo" => Self::Undo,
            "/show" => Self::Show,
            "/quit" | "/exit" | "/bye" => Self::Quit,
            _ => {
                return Err(format!(
                    "no command {name}; /help lists them, and // begins a question with /"
                ));
            }
        };
        Ok(command)
    }
}

fn number<N: FromStr>(name: &str, text: &str) -> Result<Option<N>, String> {
    match text {
        "" => Ok(None),
        text => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name} takes a number, not {text:?}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_no_commands() {
        for question in ["", "why?", "//etc", "a /help", "/one\n/two"] {
            assert_eq!(Command::parse(question), None, "{question:?}");
        }
    }

    #[test]
    fn commands_take_what_they_say() {
        let parse = |line| Command::parse(line).expect("a command");
        assert_eq!(parse("/help"), Ok(Command::Help));
        assert_eq!(parse("/bye"), Ok(Command::Quit));
        assert_eq!(
            parse("/system Be  brief. "),
            Ok(Command::Set(Change::System(Some("Be  brief.".into()))))
        );
        assert_eq!(parse("/system"), Ok(Command::Set(Change::System(None))));
        assert_eq!(
            parse("/temperature 0.5"),
            Ok(Command::Set(Change::Temperature(Some(0.5))))
        );
        assert_eq!(
            parse("/tokens\t7"),
            Ok(Command::Set(Change::MaxTokens(Some(7))))
        );
        assert_eq!(
            parse("/think low"),
            Ok(Command::Set(Change::Effort(Some("low".into()))))
        );
        assert_eq!(parse("/stats off"), Ok(Command::Set(Change::Stats(false))));
        assert_eq!(
            parse("/save a b.json"),
            Ok(Command::Save("a b.json".into()))
        );
        for wrong in [
            "/temperature warm",
            "/temperature 3",
            "/tokens -1",
            "/think hard",
            "/save",
            "/new x",
            "/nothing",
            "/stats perhaps",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_name_is_completed_and_explained() {
        for name in NAMES {
            assert!(
                COMMANDS
                    .iter()
                    .any(|(command, ..)| command.split([' ', ',']).any(|word| word == name)),
                "{name}"
            );
            let known = Command::parse(name).expect("a command");
            assert!(
                known.is_ok() || known.is_err_and(|wrong| wrong.contains("needs")),
                "{name}"
            );
        }
    }
}
