//! A model in several files, and one whose experts stay in the file.

use std::fs::{self, File};
use std::path::Path;

use andante_gguf::{Format, GgufHead, GgufWriter, PartName, Value};

use super::*;

fn opened(path: &Path, config: CpuConfig) -> Portable {
    let file = GgufFile::open(path).unwrap();
    let backend = CpuBackend::new(config).unwrap();
    load(&Keys::new(&file).unwrap(), backend, &mut |_, _| {}).unwrap()
}

fn quantised(weights: WeightForm) -> CpuConfig {
    CpuConfig {
        threads: Some(2),
        weights,
        ..CpuConfig::default()
    }
}

#[test]
fn two_files_are_one_model_and_either_names_it() {
    let whole = GgufFile::from_bytes(portable::gguf()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in whole.metadata().iter() {
        writer = writer.metadata(key, value.clone());
    }
    for tensor in whole.tensors() {
        writer = writer.tensor(tensor.name, tensor.shape, tensor.format, tensor.data);
    }
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (1..=2)
        .map(|number| {
            let prefix = "formula".to_owned();
            let count = 2;
            let name = PartName {
                prefix,
                number,
                count,
            };
            folder.path().join(name.to_string())
        })
        .collect();
    for (path, part) in paths.iter().zip(writer.finish_split(2)) {
        assert!(part.len() < 2 * portable::gguf().len() / 3, "a half of it");
        fs::write(path, part).unwrap();
    }
    let (tokens, blocks) = (portable::ids(140), table(5, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let expected = sequence.run(&mut model(exact(2)), 0, &[140]);
    for path in &paths {
        let found = sequence.run(&mut reserved(opened(path, exact(2))), 0, &[140]);
        assert_bits(&path.display().to_string(), &found, &expected);
    }
}

#[test]
fn experts_in_the_file_give_the_same_bits() {
    let (tokens, blocks) = (portable::ids(140), table(5, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let file = portable::File::new();
    // The last one's experts are IQ2_XXS and Q2_K.
    for (what, bytes) in [
        ("Q8_0", file.bytes(Format::Q8_0)),
        ("Q4_K", file.bytes(Format::Q4_K)),
        ("F16", file.bytes(Format::F16)),
        ("as ds4's", portable::File::quantised().bytes(Format::F32)),
    ] {
        let run = |weights| {
            let model = try_load(bytes.clone(), quantised(weights)).unwrap();
            sequence.run(&mut reserved(model), 0, &[90, 1, 49])
        };
        let expected = run(WeightForm::LaidOut);
        let found = run(WeightForm::ExpertsInFile);
        assert_bits(what, &found, &expected);
    }
}

const GIB: u64 = 1 << 30;

/// A file of more than eight gibibytes, nearly all experts, which takes no room on disk: every weight is 0.
fn hollow(path: &Path) -> u64 {
    const EXPERTS: u64 = 2400;
    let mut file = portable::File::new();
    file.set("expert_count", Value::U32(EXPERTS as u32));
    let small = GgufFile::from_bytes(file.bytes(Format::F32)).unwrap();
    let mut head = GgufHead::new(small.metadata().clone());
    let mut expert_bytes = 0;
    let mut data_bytes = 0;
    for tensor in small.tensors() {
        let mut shape = tensor.shape.to_vec();
        // Their last dimension counts experts.
        let of_experts = ["_exps.", "ffn_gate_inp.", "exp_probs_b."];
        if of_experts.iter().any(|part| tensor.name.contains(part)) {
            *shape.last_mut().unwrap() = EXPERTS;
        }
        head.tensor(tensor.name, &shape, tensor.format);
        let rows: u64 = shape[1..].iter().product();
        let bytes = rows * tensor.format.row_bytes(shape[0] as usize) as u64;
        data_bytes += bytes + head.padding(bytes as usize) as u64;
        if tensor.name.contains("_exps.") {
            expert_bytes += bytes;
        }
    }
    let head = head.bytes();
    fs::write(path, &head).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(head.len() as u64 + data_bytes).unwrap();
    expert_bytes
}

/// Bytes of a file in this process's memory, by smaps of proc(5).
fn resident(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let path = path.to_str().unwrap();
    let mut ours = false;
    let mut kib = 0;
    for line in maps.lines() {
        let key = line.split_whitespace().next().unwrap_or_default();
        // The first line of a mapping begins with its addresses, all others with a name and a colon.
        if !key.ends_with(':') {
            ours = line.ends_with(path);
        } else if ours && key == "Rss:" {
            kib += line
                .split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap();
        }
    }
    kib * 1024
}

/// Anonymous memory of this process, that of other tests included.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn experts_larger_than_memory_are_neither_copied_nor_read_at_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hollow.gguf");
    let expert_bytes = hollow(&path);
    assert!(expert_bytes > 8 * GIB, "{expert_bytes}");
    let mut model = opened(&path, quantised(WeightForm::ExpertsInFile));
    assert!(
        resident(&path) < 16 << 20,
        "{} bytes were read",
        resident(&path)
    );
    assert!(anonymous() < GIB, "{} bytes of memory", anonymous());
    model = reserved(model);
    let tokens = portable::ids(40);
    let blocks = table(2, 0);
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let logits = sequence.run(&mut model, 0, &[40]);
    assert!(logits.iter().all(|&logit| logit == 0.0));
    // Two experts of each layer, and what the kernel reads around them.
    assert!(
        resident(&path) < GIB / 4,
        "{} bytes were used",
        resident(&path)
    );
}
