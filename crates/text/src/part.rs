//! What an answer consists of: text, reasoning and tool calls, piece by piece and in order.

/// A piece of an answer. Pieces of one kind that follow each other belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text for the user.
    Text(String),
    /// What the model thinks before it answers or calls.
    Reasoning(String),
    /// A tool call begins; what is before it is complete.
    Call {
        /// Names the call; the tool's result repeats it.
        id: String,
        /// The function's name.
        name: String,
    },
    /// More of the latest call's arguments. Together they are JSON text, or what the model wrote in its place.
    Arguments(String),
}

impl Part {
    /// Appends this to the parts of an answer, to the last of them where both are of one kind.
    pub fn append_to(self, parts: &mut Vec<Self>) {
        match (parts.last_mut(), &self) {
            (Some(Self::Text(last)), Self::Text(more))
            | (Some(Self::Reasoning(last)), Self::Reasoning(more))
            | (Some(Self::Arguments(last)), Self::Arguments(more)) => last.push_str(more),
            _ => parts.push(self),
        }
    }
}
