//! Small vocabularies for tests, as the metadata of a model file.

use andante_gguf::{GgufFile, GgufWriter};

use crate::Tokenizer;

pub(crate) const NORMAL: i32 = 1;
pub(crate) const UNKNOWN: i32 = 2;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER_DEFINED: i32 = 4;
pub(crate) const UNUSED: i32 = 5;
pub(crate) const BYTE: i32 = 6;

/// A file with these tokens (text, kind, score).
pub(crate) fn file(
    model: &str,
    tokens: &[(&str, i32, f32)],
    more: impl FnOnce(GgufWriter) -> GgufWriter,
) -> GgufFile {
    let texts: Vec<&str> = tokens.iter().map(|token| token.0).collect();
    let kinds: Vec<i32> = tokens.iter().map(|token| token.1).collect();
    let scores: Vec<f32> = tokens.iter().map(|token| token.2).collect();
    let writer = GgufWriter::new()
        .metadata("tokenizer.ggml.model", model)
        .metadata("tokenizer.ggml.tokens", texts)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.scores", scores);
    GgufFile::from_bytes(more(writer).finish()).expect("a file just written is valid")
}

/// A byte-level vocabulary: the tokens, after them the printable ASCII bytes, blank, newline and the two bytes of `é`.
pub(crate) fn bpe(pre: &str, tokens: &[(&str, i32)], merges: &[&str]) -> Tokenizer {
    let ascii: Vec<String> = ('!'..='~')
        .chain("ĠĊÃ©".chars())
        .map(String::from)
        .collect();
    let mut all: Vec<(&str, i32, f32)> = tokens.iter().map(|&(t, k)| (t, k, 0.0)).collect();
    all.extend(ascii.iter().map(|text| (text.as_str(), NORMAL, 0.0)));
    let file = file("gpt2", &all, |writer| {
        writer
            .metadata("tokenizer.ggml.pre", pre)
            .metadata("tokenizer.ggml.merges", merges.to_vec())
    });
    Tokenizer::from_metadata(file.metadata()).expect("the vocabulary is valid")
}
