//! What is written is what is read.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{Array, Format, GgufFile, GgufWriter, Strings, Value};

/// Numbers that compare equal to themselves.
fn float() -> impl Strategy<Value = f64> {
    any::<i32>().prop_map(|n| f64::from(n) / 64.0)
}

fn strings() -> impl Strategy<Value = Strings> {
    vec(vec(any::<u8>(), 0..6), 0..5).prop_map(|strings| strings.iter().collect())
}

fn array() -> impl Strategy<Value = Array> {
    let leaf = prop_oneof![
        vec(any::<u8>(), 0..5).prop_map(Array::U8),
        vec(any::<i8>(), 0..5).prop_map(Array::I8),
        vec(any::<u16>(), 0..5).prop_map(Array::U16),
        vec(any::<i16>(), 0..5).prop_map(Array::I16),
        vec(any::<u32>(), 0..5).prop_map(Array::U32),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(float().prop_map(|x| x as f32), 0..5).prop_map(Array::F32),
        vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        strings().prop_map(Array::String),
        vec(any::<u64>(), 0..5).prop_map(Array::U64),
        vec(any::<i64>(), 0..5).prop_map(Array::I64),
        vec(float(), 0..5).prop_map(Array::F64),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| vec(inner, 0..3).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        float().prop_map(|x| Value::F32(x as f32)),
        any::<bool>().prop_map(Value::Bool),
        vec(any::<u8>(), 0..9).prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        float().prop_map(Value::F64),
        array().prop_map(Value::Array),
    ]
}

/// Shape, format and blocks of a tensor.
fn tensor() -> impl Strategy<Value = (Vec<u64>, Format, Vec<u8>)> {
    (
        prop::sample::select(Format::ALL),
        1..3_usize,
        vec(1..4_u64, 0..4),
    )
        .prop_flat_map(|(format, blocks, outer)| {
            let shape: Vec<u64> = std::iter::once((blocks * format.block_len()) as u64)
                .chain(outer)
                .collect();
            let rows: u64 = shape[1..].iter().product();
            let len = rows as usize * blocks * format.block_bytes();
            vec(any::<u8>(), len).prop_map(move |data| (shape.clone(), format, data))
        })
}

proptest! {
    #[test]
    fn files_survive(
        version in 2..4_u32,
        alignment in prop::option::of(0..9_u32),
        values in vec(value(), 0..6),
        tensors in vec(tensor(), 0..5),
    ) {
        let mut writer = GgufWriter::new().version(version);
        if let Some(power) = alignment {
            writer = writer.alignment(1 << power);
        }
        for (index, value) in values.iter().enumerate() {
            writer = writer.metadata(&format!("key.{index}"), value.clone());
        }
        for (index, (shape, format, data)) in tensors.iter().enumerate() {
            writer = writer.tensor(&format!("tensor {index}"), shape, *format, data.clone());
        }

        let file = GgufFile::from_bytes(writer.finish()).expect("sound");
        prop_assert_eq!(file.version(), version);
        prop_assert_eq!(file.metadata().len(), values.len() + usize::from(alignment.is_some()));
        for (index, value) in values.iter().enumerate() {
            prop_assert_eq!(file.metadata().get(&format!("key.{index}")), Some(value));
        }
        prop_assert_eq!(file.tensors().count(), tensors.len());
        for (tensor, (shape, format, data)) in file.tensors().zip(&tensors) {
            prop_assert_eq!((tensor.shape, tensor.format, tensor.data), (&**shape, *format, &**data));
            prop_assert_eq!(tensor.dequantize().len(), tensor.len());
        }
    }
}

#[test]
fn elements_are_quantised() {
    let values: Vec<f32> = (0..64).map(|i| i as f32 - 32.0).collect();
    let bytes = GgufWriter::new()
        .tensor_f32("t", &[32, 2], Format::Q8_0, &values)
        .finish();
    let file = GgufFile::from_bytes(bytes).expect("sound");
    let read = file.tensor("t").expect("there").dequantize();
    assert!(
        values.iter().zip(&read).all(|(x, y)| (x - y).abs() < 0.2),
        "{read:?}"
    );
}

#[test]
#[should_panic(expected = "bytes of tensor \"t\"")]
fn blocks_that_do_not_fill_the_shape_are_a_bug() {
    let _ = GgufWriter::new().tensor("t", &[32, 2], Format::Q4_0, vec![0; 18]);
}

#[test]
#[should_panic(expected = "used twice")]
fn a_key_used_twice_is_a_bug() {
    let _ = GgufWriter::new().metadata("a", 1_u32).metadata("a", 2_u32);
}
