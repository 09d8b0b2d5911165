//! Damaged files, one fault each (`scripts/make_gguf_fixtures.py`): the message says which field is
//! wrong, where and why.

use std::path::{Path, PathBuf};

use andante_gguf::GgufFile;

const EXPECTED: &[(&str, &str)] = &[
    (
        "alignment-0",
        "metadata \"general.alignment\": value at byte 53: alignment 0 is not a power of two",
    ),
    (
        "alignment-48",
        "metadata \"general.alignment\": value at byte 53: alignment 48 is not a power of two",
    ),
    (
        "alignment-u64",
        "metadata \"general.alignment\": value at byte 53: is 64 (u64), expected u32",
    ),
    (
        "array-length-huge",
        "metadata \"a\": array length at byte 41: 2305843009213693953 entries of at least 8 bytes do not fit in the 8 bytes left",
    ),
    (
        "array-string-cut",
        "metadata \"a\": array element at byte 58: needs 1099511627776 bytes, the file has 0 left",
    ),
    (
        "array-too-deep",
        "metadata \"a\": array element type at byte 73: arrays are nested deeper than 4",
    ),
    (
        "array-type-unknown",
        "metadata \"a\": array element type at byte 37: unknown value type 99",
    ),
    (
        "big-endian",
        "header: version at byte 4: big-endian GGUF files are not supported (version 3)",
    ),
    (
        "bool-2",
        "metadata \"a\": value at byte 37: a boolean is 0 or 1, found 2",
    ),
    (
        "bytes-overflow",
        "tensor \"a\": dimensions at byte 37: the number of elements or bytes overflows",
    ),
    (
        "cut-in-entry",
        "tensor \"a\": format at byte 81: needs 4 bytes, the file has 3 left",
    ),
    (
        "cut-in-header",
        "header: tensor count at byte 8: needs 8 bytes, the file has 7 left",
    ),
    (
        "cut-in-value",
        "metadata \"general.name\": value at byte 48: needs 4 bytes, the file has 2 left",
    ),
    (
        "data-misaligned",
        "tensor \"a\": data offset at byte 49: 16 is not a multiple of the alignment 32",
    ),
    (
        "data-offset-huge",
        "tensor \"a\": data offset at byte 49: 18446744073709551584 and 32 bytes of data reach beyond the 32 bytes of the data section",
    ),
    (
        "data-outside",
        "tensor \"a\": data offset at byte 49: 32 and 128 bytes of data reach beyond the 128 bytes of the data section",
    ),
    (
        "data-overlap",
        "tensor \"b\": entry at byte 57: data overlaps that of tensor \"a\"",
    ),
    (
        "dimension-0",
        "tensor \"a\": dimension at byte 45: dimension 1 is 0",
    ),
    (
        "dimensions-5",
        "tensor \"a\": number of dimensions at byte 33: 5 dimensions, at most 4 are supported",
    ),
    (
        "elements-overflow",
        "tensor \"a\": dimensions at byte 37: the number of elements or bytes overflows",
    ),
    (
        "empty",
        "header: magic at byte 0: needs 4 bytes, the file has 0 left",
    ),
    (
        "format-tq1_0",
        "tensor \"blk.0.attn_q.weight\": format at byte 63: tensor format TQ1_0 (34) is not supported",
    ),
    (
        "format-unknown",
        "tensor \"a\": format at byte 45: unknown tensor format 77",
    ),
    (
        "key-length-huge",
        "metadata entry 0: key at byte 24: needs 18446744073709551615 bytes, the file has 12 left",
    ),
    (
        "key-not-utf8",
        "metadata entry 0: key at byte 24: not UTF-8 after 3 bytes",
    ),
    (
        "key-twice",
        "metadata \"general.name\": key at byte 60: occurs twice",
    ),
    (
        "metadata-count-huge",
        "header: metadata count at byte 16: 18446744073709551615 entries of at least 13 bytes do not fit in the 36 bytes left",
    ),
    (
        "name-not-utf8",
        "tensor entry 0: name at byte 24: not UTF-8 after 0 bytes",
    ),
    ("name-twice", "tensor \"a\": name at byte 57: occurs twice"),
    (
        "part-of-a-block",
        "tensor \"a\": dimensions at byte 37: 48 columns are not a whole number of Q4_0 blocks of 32",
    ),
    (
        "pointer",
        "header: magic at byte 0: not a GGUF file: it begins with \"vers\", expected \"GGUF\"",
    ),
    (
        "split-by-another-name",
        "metadata \"split.count\": value at byte 71: a part of a split model must be named \"…-00001-of-00002.gguf\"",
    ),
    (
        "split-count-negative",
        "metadata \"split.count\": value at byte 47: is -2 (i32), expected an integer without sign",
    ),
    (
        "string-length-huge",
        "metadata \"a\": value at byte 37: needs 9223372036854775808 bytes, the file has 1 left",
    ),
    (
        "tensor-count-huge",
        "header: tensor count at byte 8: 9223372036854775808 entries of at least 24 bytes do not fit in the 44 bytes left",
    ),
    (
        "terminal-codes",
        "metadata \"\\u{1b}[2Jkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\"…: value at byte 130: a boolean is 0 or 1, found 3",
    ),
    (
        "value-type-unknown",
        "metadata \"a\": value type at byte 33: unknown value type 13",
    ),
    (
        "version-1",
        "header: version at byte 4: GGUF version 1 is not supported; convert the model again to get version 3",
    ),
    (
        "version-9",
        "header: version at byte 4: GGUF version 9 is not supported; versions 2 and 3 are",
    ),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

#[test]
fn every_fault_has_its_message() {
    for (name, expected) in EXPECTED {
        let path = corpus().join(format!("{name}.gguf"));
        let error = GgufFile::open(&path)
            .err()
            .unwrap_or_else(|| panic!("{name} opened"));
        assert_eq!(
            error.to_string(),
            format!("{}: {expected}", path.display()),
            "{name}"
        );
    }
}

#[test]
fn every_file_is_in_the_table() {
    let mut names: Vec<String> = std::fs::read_dir(corpus())
        .expect("the corpus is here")
        .map(|file| {
            file.expect("readable")
                .path()
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    let mut expected: Vec<&str> = EXPECTED.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}
