//! Split models on disk: every part opens the whole, every missing or wrong part is named.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::PartName;
use crate::{Error, Format, GgufFile, GgufWriter, Value};

fn model() -> GgufWriter {
    let tensor = |writer: GgufWriter, index: u8| {
        let values: Vec<f32> = (0..8)
            .map(|i| f32::from(index) * 100.0 + i as f32)
            .collect();
        writer.tensor_f32(&format!("t{index}"), &[4, 2], Format::F32, &values)
    };
    (0..5).fold(
        GgufWriter::new()
            .metadata("general.name", "parts")
            .alignment(64),
        tensor,
    )
}

/// Writes the parts of [`model`] and returns their paths.
fn split(folder: &TempDir, count: u16) -> Vec<PathBuf> {
    let name = |number| PartName {
        prefix: "tiny-model".to_owned(),
        number,
        count: count.into(),
    };
    let write = |(index, bytes): (usize, Vec<u8>)| {
        let path = folder.path().join(name(index as u32 + 1).to_string());
        std::fs::write(&path, bytes).expect("written");
        path
    };
    model()
        .finish_split(count)
        .into_iter()
        .enumerate()
        .map(write)
        .collect()
}

fn message(path: &Path) -> String {
    GgufFile::open(path).expect_err("an error").to_string()
}

/// Writes the n-th part anew with other split keys.
fn rewrite(path: &Path, number: i32, count: u16) {
    let writer = GgufWriter::new()
        .metadata("split.no", number)
        .metadata("split.count", count);
    std::fs::write(path, writer.finish()).expect("written");
}

#[test]
fn any_part_opens_the_whole() {
    let folder = TempDir::new().expect("a folder");
    // Seven parts of five tensors: the last ones are empty.
    for path in [2, 3, 7].map(|count| split(&folder, count)).concat() {
        let file = GgufFile::open(&path).expect("whole");
        assert_eq!(
            file.metadata().str("general.name").expect("str"),
            Some("parts")
        );
        let names: Vec<&str> = file.tensors().map(|tensor| tensor.name).collect();
        assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
        assert_eq!(file.tensor("t3").expect("there").dequantize()[7], 307.0);
        assert_eq!(file.tensor("t4").expect("there").dequantize()[0], 400.0);
    }
}

#[test]
fn a_model_of_one_part_needs_no_name() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("whole.gguf");
    std::fs::write(&path, model().finish_split(1).remove(0)).expect("written");
    assert_eq!(GgufFile::open(&path).expect("whole").tensors().count(), 5);
}

#[test]
fn a_missing_part_is_named() {
    let folder = TempDir::new().expect("a folder");
    let paths = split(&folder, 3);
    std::fs::remove_file(&paths[1]).expect("removed");
    for path in [&paths[0], &paths[2]] {
        let error = GgufFile::open(path).expect_err("missing");
        assert!(
            matches!(&error, Error::MissingPart { path, number: 2, count: 3 } if *path == paths[1])
        );
        assert!(
            error
                .to_string()
                .ends_with("tiny-model-00002-of-00003.gguf"),
            "{error}"
        );
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let paths = split(&folder, 3);
    let part = |index: usize| paths[index].display().to_string();

    rewrite(&paths[1], 2, 3);
    let expected = "metadata \"split.no\": value at byte 44: is 2, expected 1 from the file's name";
    assert_eq!(message(&paths[0]), format!("{}: {expected}", part(1)));

    rewrite(&paths[1], 1, 4);
    let expected =
        "metadata \"split.count\": value at byte 71: is 4, expected 3 from the file's name";
    assert_eq!(message(&paths[0]), format!("{}: {expected}", part(1)));

    rewrite(&paths[1], 1, 3);
    let first = message(&paths[0]);
    assert!(first.contains("\"split.tensors.count\""), "{first}");
    assert!(
        first.ends_with("is 5, but the parts have 3 tensors"),
        "{first}"
    );

    std::fs::copy(&paths[0], &paths[1]).expect("copied");
    assert!(message(&paths[0]).contains("\"split.no\""));

    std::fs::write(
        &paths[1],
        GgufWriter::new().metadata("split.count", 3_u16).finish(),
    )
    .expect("written");
    let expected =
        "header: metadata count at byte 16: a part of a split model needs the key \"split.no\"";
    assert_eq!(message(&paths[0]), format!("{}: {expected}", part(1)));

    std::fs::write(&paths[1], b"GGUF").expect("written");
    assert_eq!(
        message(&paths[0]),
        format!(
            "{}: header: version at byte 4: needs 4 bytes, the file has 0 left",
            part(1)
        )
    );
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let folder = TempDir::new().expect("a folder");
    for number in 0..2_u16 {
        let writer = GgufWriter::new()
            .metadata("split.no", number)
            .metadata("split.count", 2_u16);
        let bytes = writer
            .tensor_f32("twin", &[1], Format::F32, &[1.0])
            .finish();
        std::fs::write(
            folder
                .path()
                .join(format!("m-0000{}-of-00002.gguf", number + 1)),
            bytes,
        )
        .expect("written");
    }
    let error = message(&folder.path().join("m-00001-of-00002.gguf"));
    assert!(
        error.ends_with("m-00002-of-00002.gguf: tensor \"twin\": name at byte 71: occurs twice"),
        "{error}"
    );
}

#[test]
fn a_part_needs_its_path() {
    let error = GgufFile::from_bytes(model().finish_split(2).remove(1))
        .expect_err("a part")
        .to_string();
    assert!(
        error.ends_with("a part of a split model must be opened by its path"),
        "{error}"
    );
}

#[test]
fn numbers_are_whole() {
    let bytes = GgufWriter::new()
        .metadata("split.count", Value::F32(2.0))
        .finish();
    let error = GgufFile::from_bytes(bytes)
        .expect_err("a float")
        .to_string();
    assert!(
        error.ends_with("is 2 (f32), expected an integer without sign"),
        "{error}"
    );
}

#[test]
fn part_names() {
    let parse = |name: &str| PartName::parse(Path::new(name));
    let name = parse("dir/a-of-b-00002-of-00010.gguf").expect("a part");
    assert_eq!(
        (name.prefix.as_str(), name.number, name.count),
        ("a-of-b", 2, 10)
    );
    assert_eq!(name.to_string(), "a-of-b-00002-of-00010.gguf");
    for other in [
        "a.gguf",
        "a-2-of-10.gguf",
        "a-00000-of-00002.gguf",
        "a-00003-of-00002.gguf",
        "a-+0001-of-00002.gguf",
        "a-00001-of-00002.bin",
    ] {
        assert_eq!(parse(other), None, "{other}");
    }
}
