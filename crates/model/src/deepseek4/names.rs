//! What tensors of a layer are called: as llama.cpp's converter calls them, whose names ds4's files share; where files part, by
//! further names.

use andante_gguf::GgufFile;

/// Further names of tensors.
const FURTHER: &[(&str, &[&str])] = &[
    // ds4's names of the block that predicts one token further, then llama.cpp's.
    ("enorm", &["nextn.enorm"]),
    ("hnorm", &["nextn.hnorm"]),
    ("norm", &["nextn.shared_head_norm"]),
];

/// The name of a tensor in this file, the usual one when it is not there at all.
pub(super) fn of(file: &GgufFile, prefix: &str, name: &str) -> String {
    let further = FURTHER.iter().filter(|(usual, _)| *usual == name);
    let further = further.flat_map(|(_, further)| *further);
    let full = |name: &str| format!("{prefix}{name}.weight");
    let there = |name: &String| file.tensor(name).is_some();
    let mut names = std::iter::once(&name).chain(further).map(|name| full(name));
    names.find(there).unwrap_or_else(|| full(name))
}
