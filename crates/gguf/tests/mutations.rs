//! Damaged and hostile files: whatever the bytes, opening ends with an error or with a consistent
//! model, without a panic, and with memory bounded by the size of the file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use andante_gguf::{Array, Format, GgufFile, GgufWriter, Value};

/// The system's allocator, counting for each thread: the test harness has threads of its own.
struct Counting;

thread_local! {
    /// Bytes in use, below 0 where a thread frees what another allocated.
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get() + layout.size() as isize);
        PEAK.set(PEAK.get().max(IN_USE.get()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get() - layout.size() as isize);
        // SAFETY: as above; `pointer` came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Opening may take this many times the file's bytes, and a little for the error.
const OPEN_FACTOR: usize = 16;
const OPEN_SLACK: usize = 4096;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A file with every kind of value and several formats.
fn rich() -> GgufWriter {
    let nested = Array::Array(vec![
        Array::Array(vec![
            Array::U8(vec![1, 2, 3]),
            Array::String(["x", ""].into_iter().collect()),
        ]),
        Array::F64(vec![]),
    ]);
    let ramp: Vec<f32> = (0..256).map(|i| i as f32 / 100.0 - 1.0).collect();
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("u8", 1_u8)
        .metadata("i8", -1_i8)
        .metadata("u16", 2_u16)
        .metadata("i16", -2_i16)
        .metadata("u32", 3_u32)
        .metadata("i32", -3_i32)
        .metadata("u64", 4_u64)
        .metadata("i64", -4_i64)
        .metadata("f32", 0.5_f32)
        .metadata("f64", 0.25_f64)
        .metadata("bool", true)
        .metadata("tokenizer.ggml.tokens", vec!["<s>", "a", "b", "ab", "é"])
        .metadata("scores", vec![0.0_f32, -1.0, -2.0])
        .metadata("types", vec![1_i32, 2, 3])
        .metadata("flags", vec![true, false])
        .metadata("nested", Value::Array(nested))
        .tensor_f32("token_embd.weight", &[32, 5], Format::Q4_0, &ramp[..160])
        .tensor_f32("norm", &[7], Format::F32, &ramp[..7])
        .tensor_f32("cube", &[2, 2, 2, 2], Format::BF16, &ramp[..16])
        .tensor_f32("k", &[256], Format::Q6_K, &ramp)
        .tensor("grid", &[256], Format::IQ1_M, (0..56).collect::<Vec<u8>>())
        .tensor("table", &[32], Format::MXFP4, vec![0x7e; 17])
}

fn sound_files() -> Vec<Vec<u8>> {
    vec![
        rich().finish(),
        rich().alignment(8).version(2).finish(),
        rich().finish_split(2).remove(0),
        GgufWriter::new()
            .tensor_f32("scalar", &[], Format::F16, &[1.0])
            .finish(),
        GgufWriter::new().metadata("strings", vec![""; 40]).finish(),
    ]
}

/// Files made of the smallest entries, where bookkeeping weighs most.
fn crowded_files() -> Vec<Vec<u8>> {
    let nested = Array::Array((0..5000).map(|_| Array::U8(Vec::new())).collect());
    let pairs = (0..3000).fold(GgufWriter::new(), |writer, i| {
        writer.metadata(&format!("{i:x}"), true)
    });
    let tensors = (0..3000).fold(GgufWriter::new().alignment(1), |writer, i| {
        writer.tensor(&format!("{i:x}"), &[], Format::F16, vec![0; 2])
    });
    let strings = GgufWriter::new().metadata("a", vec![""; 5000]);
    vec![
        GgufWriter::new().metadata("a", nested).finish(),
        pairs.finish(),
        tensors.finish(),
        strings.finish(),
    ]
}

#[derive(Default)]
struct Tally {
    opened: usize,
    refused: usize,
}

impl Tally {
    /// Opens `bytes`, uses what opens, and checks memory.
    fn check(&mut self, bytes: Vec<u8>) {
        let (len, in_use) = (bytes.len(), IN_USE.get());
        let before = in_use - bytes.capacity() as isize;
        let allowed = in_use + (OPEN_FACTOR * len + OPEN_SLACK) as isize;
        PEAK.set(in_use);
        let opened = GgufFile::from_bytes(bytes);
        assert!(
            PEAK.get() <= allowed,
            "opening {len} bytes took {} more",
            PEAK.get() - before
        );
        match opened {
            Ok(file) => {
                use_all(&file);
                self.opened += 1;
            }
            Err(error) => {
                let message = error.to_string();
                assert!(
                    message.contains(" at byte ") && message.len() < 600,
                    "{message}"
                );
                self.refused += 1;
            }
        }
        assert_eq!(IN_USE.get(), before, "memory left over");
    }
}

/// What opens must be consistent: sizes agree, every row and element can be read.
fn use_all(file: &GgufFile) {
    for tensor in file.tensors() {
        assert_eq!(
            file.tensor(tensor.name).map(|found| found.data),
            Some(tensor.data)
        );
        assert_eq!(
            tensor.data.len(),
            tensor.rows() * tensor.format.row_bytes(tensor.cols())
        );
        assert_eq!(tensor.dequantize().len(), tensor.len());
        assert_eq!(
            tensor.row(tensor.rows() - 1).len(),
            tensor.format.row_bytes(tensor.cols())
        );
    }
    for (key, value) in file.metadata().iter() {
        assert!(!format!("{key} = {value} {value:?}").is_empty());
        assert_eq!(
            file.metadata().u32(key).is_ok(),
            file.metadata().require_u32(key).is_ok()
        );
        let _ = (
            file.metadata().strings(key),
            file.metadata().f32s(key),
            file.metadata().i32s(key),
        );
    }
}

fn patched(file: &[u8], at: usize, patch: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let end = (at + patch.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&patch[..end - at]);
    bytes
}

/// One to four random edits: bits, bytes, extreme numbers, pieces removed, repeated, moved or
/// swapped with zeros.
fn mutated(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(4) {
        let len = bytes.len();
        if len == 0 {
            break;
        }
        let at = random.below(len);
        let end = at + random.below((len - at).min(64) + 1);
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let extreme = (1_u64 << random.below(64)).wrapping_sub(random.next() % 2);
                bytes = patched(&bytes, at, &extreme.to_le_bytes());
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                let to = random.below(len);
                bytes.splice(to..to, piece);
            }
            5 => {
                let piece: Vec<u8> = bytes.drain(at..end).collect();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            _ => bytes[at..end].fill(if random.below(2) == 0 { 0 } else { 0xff }),
        }
    }
    bytes
}

#[test]
fn damage_is_refused_or_harmless() {
    let mut tally = Tally::default();
    for file in sound_files() {
        for len in 0..file.len() {
            tally.check(file[..len].to_vec());
        }
        for at in 0..file.len() {
            for flip in [0x01, 0x80, 0xff] {
                tally.check(patched(&file, at, &[file[at] ^ flip]));
            }
            for extreme in [0, 1, 0x7fff_ffff, u32::MAX] {
                tally.check(patched(&file, at, &extreme.to_le_bytes()));
            }
            for extreme in [
                0,
                1 << 31,
                1 << 32,
                1 << 60,
                1 << 63,
                u64::MAX,
                u64::MAX - 31,
                file.len() as u64,
            ] {
                tally.check(patched(&file, at, &extreme.to_le_bytes()));
            }
        }
    }
    for file in crowded_files() {
        tally.check(file[..file.len() - 1].to_vec());
        tally.check(file);
    }
    let exhaustive = tally.opened + tally.refused;
    let mut random = Random(7);
    for file in sound_files() {
        for _ in 0..4000 {
            tally.check(mutated(&file, &mut random));
        }
    }
    assert_eq!(tally.opened + tally.refused, exhaustive + 20_000);
    // Both ends are really reached: much damage is fatal, and some (in tensor data, in values) is
    // not.
    assert!(
        exhaustive > 40_000 && tally.opened > 5_000 && tally.refused > 20_000,
        "{exhaustive} {} {}",
        tally.opened,
        tally.refused
    );
}

#[test]
fn a_damaged_part_is_refused_or_harmless() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = |number| folder.path().join(format!("m-0000{number}-of-00002.gguf"));
    let parts = rich().finish_split(2);
    std::fs::write(path(1), &parts[0]).expect("written");
    let (mut opened, mut refused) = (0, 0);
    for (at, flip) in (0..parts[1].len()).flat_map(|at| [(at, 0x01), (at, 0x80), (at, 0xff)]) {
        std::fs::write(path(2), patched(&parts[1], at, &[parts[1][at] ^ flip])).expect("written");
        match GgufFile::open(&path(1)) {
            Ok(file) => {
                use_all(&file);
                opened += 1;
            }
            Err(error) => {
                // A part with other tensors than its own may show in what the first part says.
                let message = error.to_string();
                let named = [1, 2]
                    .iter()
                    .any(|&part| message.starts_with(path(part).to_str().expect("UTF-8")));
                assert!(named && message.contains(" at byte "), "{message}");
                refused += 1;
            }
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} {refused}");
}
