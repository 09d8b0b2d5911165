//! Pre-tokenizers: how a text is cut into the words that BPE merges never cross.
//!
//! The patterns are those that llama.cpp uses for each name (`src/llama-vocab.cpp`, `llm_tokenizer_bpe`), which in
//! turn follow each model's `tokenizer.json`. They run on an automaton in linear time, so no text can make them
//! backtrack. That leaves one thing to do by hand: all of them end in `\s+(?!\S)`, "blanks, but leave the last one
//! to the word that follows", and an automaton has no lookahead. The pattern here is `\s+`, and the last blank is given back.

#[cfg(test)]
mod tests;

use regex::Regex;

use crate::TextError;

/// The alternatives that GPT-2 introduced; `\s+` at the end is cut short as the module says.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
/// o200k: words end where a capital follows a small letter, and contractions belong to their word.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;

/// A kind of pre-tokenizer: its names in model files, what they imply, and its patterns in the order they cut.
struct Kind {
    names: &'static [&'static str],
    /// Whether a word that is a token is taken whole, without merging.
    whole_words: bool,
    /// Whether a prompt begins with BOS when the file does not say.
    add_bos: bool,
    patterns: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        names: &["gpt-2"],
        whole_words: false,
        add_bos: false,
        patterns: &[GPT2],
    },
    Kind {
        names: &["smollm"],
        whole_words: false,
        add_bos: false,
        patterns: &[r"\p{N}", GPT2],
    },
    Kind {
        names: &["llama-bpe", "llama3", "llama-v3"],
        whole_words: true,
        add_bos: true,
        patterns: &[LLAMA3],
    },
    Kind {
        names: &["qwen2"],
        whole_words: false,
        add_bos: false,
        patterns: &[QWEN2],
    },
    Kind {
        names: &["gpt-4o", "llama4", "kanana2"],
        whole_words: false,
        add_bos: false,
        patterns: &[GPT4O],
    },
    Kind {
        names: &["deepseek-v3", "joyai-llm"],
        whole_words: false,
        add_bos: false,
        patterns: &[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
    },
    Kind {
        names: &["default"],
        whole_words: false,
        add_bos: false,
        patterns: &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    },
];

/// Cuts text into words.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    cutters: Vec<Cutter>,
    pub(super) whole_words: bool,
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer that model files call `name`.
    pub(super) fn new(name: &str) -> Result<Self, TextError> {
        let Some(kind) = KINDS.iter().find(|kind| kind.names.contains(&name)) else {
            let known: Vec<&str> = KINDS.iter().flat_map(|kind| kind.names).copied().collect();
            return Err(TextError::UnknownPreTokenizer {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        Ok(Self {
            cutters: kind.patterns.iter().map(|p| Cutter::new(p)).collect(),
            whole_words: kind.whole_words,
            add_bos: kind.add_bos,
        })
    }

    /// Calls `word` with every word, in order; together they are the whole text.
    pub(super) fn split<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        cut_all(&self.cutters, text, word);
    }
}

/// Cuts by the first cutter, then every piece by the others.
fn cut_all<'t>(cutters: &[Cutter], text: &'t str, word: &mut dyn FnMut(&'t str)) {
    match cutters {
        [] => word(text),
        [first, rest @ ..] => first.cut(text, &mut |piece| cut_all(rest, piece, word)),
    }
}

/// One pattern: its matches are pieces, and so is what lies between them.
#[derive(Debug)]
struct Cutter {
    pattern: Regex,
    /// Whether a match of blanks leaves its last one to what follows.
    returns_blank: bool,
    /// Whether blanks up to a line's end are a match of their own, which returns nothing.
    ends_lines: bool,
}

impl Cutter {
    fn new(pattern: &str) -> Self {
        Self {
            pattern: Regex::new(pattern).expect("the patterns of this module are valid"),
            returns_blank: pattern.ends_with(r"|\s+"),
            ends_lines: pattern.contains(r"\s*[\r\n]+"),
        }
    }

    fn cut<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        while let Some(found) = self.pattern.find_at(text, done) {
            if found.start() > done {
                piece(&text[done..found.start()]);
            }
            done = found.end();
            if self.returns_blank && done < text.len() {
                done -= self.blank_to_return(found.as_str());
            }
            piece(&text[found.start()..done]);
        }
        if done < text.len() {
            piece(&text[done..]);
        }
    }

    /// Length in bytes of the last blank of a match of several blanks. Only the last alternative ends in a blank,
    /// except that lines' ends belong to others where the pattern has such.
    fn blank_to_return(&self, matched: &str) -> usize {
        match matched.chars().next_back() {
            Some('\r' | '\n') if self.ends_lines => 0,
            Some(last) if last.is_whitespace() && last.len_utf8() < matched.len() => {
                last.len_utf8()
            }
            _ => 0,
        }
    }
}
