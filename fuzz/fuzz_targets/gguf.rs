//! Any bytes as a model file. Run: `cargo +nightly fuzz run gguf fuzz/corpus/gguf
//! crates/gguf/tests/corpus`; new inputs go to the first folder.
#![no_main]

use andante_gguf::GgufFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_bytes(bytes.to_vec()) else {
        return;
    };
    for tensor in file.tensors() {
        assert_eq!(tensor.dequantize().len(), tensor.rows() * tensor.cols());
    }
    for (key, value) in file.metadata().iter() {
        assert!(file.metadata().get(key).is_some() && !value.to_string().is_empty());
    }
});
