//! Names under which clients of other servers know the model, without a word from whoever starts this one.
//!
//! DeepSeek's own API and ds4-server switch thinking by the model's name. Like there, the name counts only where the request itself
//! says nothing.

/// A name that stands for the served model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    /// Whether it thinks unless the request says otherwise.
    pub(crate) thinks: bool,
}

const DEEPSEEK4: [Alias; 3] = [
    alias("deepseek-v4-flash", true),
    alias("deepseek-chat", false),
    alias("deepseek-reasoner", true),
];

const fn alias(name: &'static str, thinks: bool) -> Alias {
    Alias { name, thinks }
}

/// Those of a model of this architecture.
pub(crate) fn of(architecture: &str) -> &'static [Alias] {
    match architecture {
        "deepseek4" => &DEEPSEEK4,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
