//! Sound files: one written byte by byte, one written by the PyPI package `gguf`.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::{Array, Format, GgufFile, GgufWriter, Value};

/// Version 2, one pair, alignment 8, two tensors whose data is not in directory order.
fn by_hand() -> Vec<u8> {
    let mut file = b"GGUF\x02\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    file.extend(b"\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0\x08\0\0\0");
    file.extend(b"\x01\0\0\0\0\0\0\0a\x02\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0");
    file.extend(b"\x01\0\0\0\0\0\0\0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    file.resize(file.len().next_multiple_of(8), 0);
    file.extend(42.0_f32.to_le_bytes());
    file.extend([0; 4]);
    // f16: 1, 2, -1, 0.5, 0, -2
    file.extend(
        [0x3c00_u16, 0x4000, 0xbc00, 0x3800, 0, 0xc000]
            .iter()
            .flat_map(|half| half.to_le_bytes()),
    );
    file
}

#[test]
fn a_file_written_byte_by_byte() {
    let file = GgufFile::from_bytes(by_hand()).expect("sound");
    assert_eq!(file.version(), 2);
    // 24 of the header, 33 of the pair, 41 and 25 of the entries.
    let heads: Vec<&[u8]> = file.heads().collect();
    assert_eq!(heads, [&by_hand()[..24 + 33 + 41 + 25]]);
    assert_eq!(
        file.metadata().u32("general.alignment").expect("u32"),
        Some(8)
    );
    let names: Vec<&str> = file.tensors().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["a", "b"]);

    let a = file.tensor("a").expect("there");
    assert_eq!(
        (a.shape, a.format, a.cols(), a.rows(), a.len()),
        ([2, 3].as_slice(), Format::F16, 2, 3, 6)
    );
    assert_eq!(a.dequantize(), [1.0, 2.0, -1.0, 0.5, 0.0, -2.0]);
    assert_eq!(a.row(1), [0x00, 0xbc, 0x00, 0x38]);
    assert!(std::panic::catch_unwind(|| a.row(3)).is_err());

    let scalar = file.tensor("b").expect("there");
    assert_eq!(
        (scalar.shape, scalar.cols(), scalar.rows()),
        ([].as_slice(), 1, 1)
    );
    assert_eq!(scalar.dequantize(), [42.0]);
    assert!(file.tensor("c").is_none());
}

#[test]
fn a_file_of_the_pypi_package() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pypi.gguf");
    let file = GgufFile::open(&path).expect("sound");
    // What was released can be read again, and the whole of what follows is.
    for tensor in file.tensors() {
        let before = tensor.data.to_vec();
        let kept = tensor.keep();
        tensor.release(0..tensor.rows());
        assert_eq!(tensor.data, before);
        assert_eq!(*kept, *before);
    }
    let first = file.tensors().next().expect("a tensor");
    let (kept, before) = (first.keep(), first.data.to_vec());
    assert!(std::panic::catch_unwind(|| first.release(0..first.rows() + 1)).is_err());
    drop(file);
    assert_eq!(*kept, *before, "what is kept outlives the file");
    let file = GgufFile::open(&path).expect("sound");
    let metadata = file.metadata();
    assert_eq!(file.version(), 3);
    assert_eq!(
        metadata.str("general.architecture").expect("str"),
        Some("llama")
    );
    let expected: [(&str, Value); 14] = [
        ("t.u8", 250_u8.into()),
        ("t.i8", (-100_i8).into()),
        ("t.u16", 65_000_u16.into()),
        ("t.i16", (-30_000_i16).into()),
        ("t.u32", 4_000_000_000_u32.into()),
        ("t.i32", (-2_000_000_000_i32).into()),
        ("t.u64", ((1_u64 << 63) + 1).into()),
        ("t.i64", (-(1_i64 << 62)).into()),
        ("t.f32", 0.1_f32.into()),
        ("t.f64", 0.1_f64.into()),
        ("t.bool", true.into()),
        ("t.string", "grüße".into()),
        ("t.strings", vec!["a", "", "é"].into()),
        ("t.ints", vec![1_i32, -2, 3].into()),
    ];
    for (key, value) in &expected {
        assert_eq!(metadata.get(key), Some(value), "{key}");
    }
    let nested = Array::Array(vec![Array::I32(vec![1, 2]), Array::I32(vec![3])]);
    assert_eq!(metadata.get("t.nested"), Some(&nested.into()));

    let dense = file.tensor("dense").expect("there");
    assert_eq!((dense.cols(), dense.rows()), (3, 2));
    assert_eq!(dense.dequantize(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let quantized = file.tensor("quantized").expect("there");
    assert_eq!(
        (quantized.shape, quantized.format),
        ([64, 2].as_slice(), Format::Q8_0)
    );
    for (index, x) in quantized.dequantize().iter().enumerate() {
        let original = index as f32 / 127.0 * 2.0 - 1.0;
        assert!(
            (x - original).abs() < 0.5 / 127.0 + 1e-3,
            "{index}: {x}, {original}"
        );
    }
}

/// Opening maps and does not read: this file has no blocks on disk for its 80 GiB tensor.
#[test]
fn a_huge_file_is_only_mapped() {
    let (cols, rows) = (1_u64 << 20, 20_u64 << 10);
    let mut head = GgufWriter::new()
        .tensor("huge", &[1, 1], Format::F32, [0; 4])
        .finish();
    head[40..48].copy_from_slice(&cols.to_le_bytes());
    head[48..56].copy_from_slice(&rows.to_le_bytes());
    let data_start = 96;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&head).expect("written");
    file.as_file()
        .set_len(data_start + cols * rows * 4)
        .expect("a sparse file");
    file.seek(SeekFrom::Start(data_start + cols * (rows - 1) * 4))
        .expect("sought");
    file.write_all(b"last row").expect("written");

    let model = GgufFile::open(file.path()).expect("sound");
    let tensor = model.tensor("huge").expect("there");
    assert_eq!(tensor.data.len(), 80 << 30);
    assert_eq!(&tensor.row(rows as usize - 1)[..8], b"last row");
}

#[test]
fn a_path_that_is_no_file_is_named() {
    let missing = GgufFile::open(Path::new("no/such/model.gguf")).expect_err("missing");
    assert!(
        missing
            .to_string()
            .starts_with("cannot read no/such/model.gguf: "),
        "{missing}"
    );
    let folder = GgufFile::open(Path::new(env!("CARGO_MANIFEST_DIR"))).expect_err("a folder");
    assert!(folder.to_string().starts_with("cannot read "), "{folder}");
}
