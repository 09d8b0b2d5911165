//! Where implementations of the encoding part: each place with the official way first, which is the default.

use crate::TextError;

/// Makes a choice of named ways, the first of which is the official one.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$way_doc:meta])* $way:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name {
            $($(#[$way_doc])* $way,)+
        }

        impl $name {
            const WAYS: &[(&str, Self)] = &[$(($text, Self::$way),)+];
        }

        impl Default for $name {
            fn default() -> Self {
                Self::WAYS[0].1
            }
        }
    };
}

choice! {
    /// What the levels of effort are called.
    Effort {
        /// Those of the first release: `max` alone has words of its own.
        V4 = "v4",
        /// Those of 0731: `high` has the words that `max` had, and `max` stronger ones.
        V4_0731 = "0731",
    }
}

choice! {
    /// Whether the model thinks where the request does not say. The official code has to be told; its API and ds4-server think,
    /// llama.cpp's template does not.
    DefaultThinking {
        /// It does.
        On = "on",
        /// It does not.
        Off = "off",
    }
}

choice! {
    /// Where system texts stand.
    Systems {
        /// Where they are in the conversation, nothing between two of them.
        InPlace = "in-place",
        /// At the beginning, blank lines between them, as llama.cpp's template and ds4-server write them.
        Joined = "joined",
    }
}

choice! {
    /// Where the tools are described.
    Tools {
        /// Behind the system text.
        AfterSystem = "after-system",
        /// Before it, as ds4-server does: a system text that changes leaves their keys and values cached.
        BeforeSystem = "before-system",
    }
}

choice! {
    /// What stands before the tools where there is no system text.
    ToolsAlone {
        /// A blank line.
        BlankLine = "blank-line",
        /// Nothing, as in llama.cpp's template.
        None = "none",
    }
}

choice! {
    /// The order of results.
    ResultOrder {
        /// That of the calls.
        Calls = "calls",
        /// That of the request, as in llama.cpp's template.
        Given = "given",
    }
}

choice! {
    /// What stands between a result and what is before it.
    ResultGap {
        /// A blank line.
        BlankLine = "blank-line",
        /// Nothing, as in ds4-server.
        None = "none",
    }
}

choice! {
    /// Whether earlier reasoning is kept where tools have answered but the request has none.
    ToolHistory {
        /// It is dropped as in any conversation without tools.
        Drop = "drop",
        /// It is kept as in any with some, as in llama.cpp's template.
        Keep = "keep",
    }
}

choice! {
    /// What developers' messages are.
    Developer {
        /// Messages of their own, written as a user's; where earlier reasoning is dropped, earlier ones of them are too.
        Own = "own",
        /// Users' messages, as in llama.cpp's template.
        User = "user",
        /// System texts, as in ds4-server.
        System = "system",
    }
}

/// How the encoding is written where implementations part. The default is the official way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choices {
    /// `effort`
    pub(super) effort: Effort,
    /// `thinking`
    pub(super) thinking: DefaultThinking,
    /// `system`
    pub(super) systems: Systems,
    /// `tools`
    pub(super) tools: Tools,
    /// `tools-alone`
    pub(super) tools_alone: ToolsAlone,
    /// `result-order`
    pub(super) result_order: ResultOrder,
    /// `result-gap`
    pub(super) result_gap: ResultGap,
    /// `tool-history`
    pub(super) tool_history: ToolHistory,
    /// `developer`
    pub(super) developer: Developer,
}

/// A choice by name.
struct Choice {
    name: &'static str,
    ways: fn() -> Vec<&'static str>,
    /// Chooses a way by its place among them.
    set: fn(&mut Choices, usize),
}

const CHOICES: &[Choice] = {
    macro_rules! row {
        ($name:literal, $field:ident: $kind:ident) => {
            Choice {
                name: $name,
                ways: || $kind::WAYS.iter().map(|&(name, _)| name).collect(),
                set: |choices, way| choices.$field = $kind::WAYS[way].1,
            }
        };
    }
    &[
        row!("effort", effort: Effort),
        row!("thinking", thinking: DefaultThinking),
        row!("system", systems: Systems),
        row!("tools", tools: Tools),
        row!("tools-alone", tools_alone: ToolsAlone),
        row!("result-order", result_order: ResultOrder),
        row!("result-gap", result_gap: ResultGap),
        row!("tool-history", tool_history: ToolHistory),
        row!("developer", developer: Developer),
    ]
};

/// The names of the choices with those of their ways, the official one first.
pub fn choices() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    CHOICES.iter().map(|choice| (choice.name, (choice.ways)()))
}

impl Choices {
    /// Chooses by names, as in `result-order=given`.
    ///
    /// # Errors
    /// [`TextError::UnknownChoice`] for a name or way that there is not.
    pub fn choose(&mut self, choice: &str) -> Result<(), TextError> {
        let (name, way) = choice.split_once('=').unwrap_or((choice, ""));
        let Some(known) = CHOICES.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = CHOICES.iter().map(|known| known.name).collect();
            return Err(unknown(choice, &names));
        };
        let ways = (known.ways)();
        let place = ways.iter().position(|known| *known == way);
        (known.set)(self, place.ok_or_else(|| unknown(choice, &ways))?);
        Ok(())
    }
}

fn unknown(choice: &str, known: &[&str]) -> TextError {
    TextError::UnknownChoice {
        choice: choice.to_owned(),
        known: known.join(", "),
    }
}
