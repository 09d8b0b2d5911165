//! Logits of real models against those of two builds of llama.cpp, on prompts of 1 to 1,500 tokens.
//!
//! `scripts/make_golden_logits.py` makes the fixtures and says what is in them.

#![expect(
    clippy::print_stdout,
    reason = "the divergence at each position is for people to read"
)]

mod pull;

use std::path::Path;

use andante_compute::{Batch, CpuBackend, CpuConfig, KvType, Logits, WeightForm};
use andante_gguf::GgufFile;
use andante_model::{Limits, Model, load};
use pull::pull;
use serde::Deserialize;

/// Rows of a forward pass; the longest prompt takes several.
const CHUNK: usize = 512;

#[derive(Deserialize)]
struct Fixture {
    /// The model as it is.
    quantized: Runs,
    /// With weights, activations, keys and values in F32.
    dequantized: Runs,
}

#[derive(Deserialize)]
struct Runs {
    max_divergence: f64,
    median_divergence: f64,
    ordered_positions: usize,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    tokens: Vec<u32>,
    rows: Vec<Row>,
}

/// Position, whether the order of the ten highest logits is beyond doubt, logarithm of the sum of all exponentials, ids of the
/// highest logits, those logits.
#[derive(Deserialize)]
struct Row(u32, bool, f64, Vec<usize>, Vec<f32>);

#[test]
fn smollm2_agrees_with_llama_cpp() {
    // What F32 arithmetic in another order may change: relative errors of probabilities of 1e-4. The two builds differ by less, since
    // most of their code is the same.
    check("smollm2", 1e-8);
}

#[test]
fn gemma3_agrees_with_llama_cpp() {
    // llama.cpp looks GELU up in a table of 16-bit floats, in both builds; the exact function is further from either.
    check("gemma3", 1e-5);
}

/// `f32_divergence` is allowed in nats where the builds differ by less.
fn check(name: &str, f32_divergence: f64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    let text = std::fs::read_to_string(path).expect("the fixture is readable");
    let mut fixture: Fixture = serde_json::from_str(&text).expect("the fixture has this shape");
    let file = GgufFile::open(&pull(name)).expect("the model is a GGUF file");
    let exact = &mut fixture.dequantized;
    exact.max_divergence = exact.max_divergence.max(f32_divergence);
    exact.median_divergence = exact.median_divergence.max(f32_divergence);
    // Activations rounded to 8 bits turn the least difference into one of their steps: how far the worst of some hundred
    // positions is off is chance, and differs by a third between instruction sets that are equally right.
    let rounded = &mut fixture.quantized;
    rounded.max_divergence *= 1.5;
    rounded.median_divergence *= 1.5;
    let reference = CpuConfig {
        weights: WeightForm::Reference,
        kv_type: KvType::F32,
        ..CpuConfig::default()
    };
    compare(
        &format!("{name} dequantized"),
        &fixture.dequantized,
        &file,
        reference,
    );
    compare(
        &format!("{name} quantized"),
        &fixture.quantized,
        &file,
        CpuConfig::default(),
    );
}

fn compare(label: &str, runs: &Runs, file: &GgufFile, config: CpuConfig) {
    let backend = CpuBackend::new(config).expect("a backend");
    let mut model = load(file, backend, &mut |_, _| {}).expect("the model loads");
    let limits = Limits {
        blocks: 64,
        batch_tokens: CHUNK as u32,
        logit_rows: CHUNK as u32,
        state_rows: 0,
        running_states: 0,
    };
    model.reserve(limits).expect("memory");
    let (mut ordered, mut wrong, mut divergences) = (0, 0, Vec::new());
    for prompt in &runs.prompts {
        let logits = run(&mut *model, prompt);
        for (row, logits) in prompt.rows.iter().zip(&logits) {
            let divergence = divergence(row, logits);
            let length = prompt.tokens.len();
            let same = order(logits) == row.3[..10];
            let verdict = if row.1 && !same {
                "WRONG"
            } else if same {
                "same"
            } else {
                "undecided"
            };
            println!(
                "{label}: prompt of {length}, position {}: divergence {divergence:.2e}, order {verdict}",
                row.0
            );
            divergences.push(divergence);
            ordered += usize::from(row.1);
            wrong += usize::from(row.1 && !same);
        }
    }
    divergences.sort_by(f64::total_cmp);
    let (median, max) = (
        divergences[divergences.len() / 2],
        divergences[divergences.len() - 1],
    );
    println!(
        "{label}: {} positions, divergence median {median:.2e} of {:.2e}, max {max:.2e} of {:.2e}, order wrong at {wrong} of {ordered}",
        divergences.len(),
        runs.median_divergence,
        runs.max_divergence,
    );
    assert_eq!(ordered, runs.ordered_positions);
    assert_eq!(wrong, 0, "{label}: the ten highest logits in another order");
    assert!(
        max <= runs.max_divergence && median <= runs.median_divergence,
        "{label}"
    );
}

/// Logits of the fixture's rows of a prompt.
fn run(model: &mut dyn Model, prompt: &Prompt) -> Vec<Vec<f32>> {
    let block_tokens = model.kv_layout().block_tokens;
    let table: Vec<u32> = (0..64).collect();
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    for (i, tokens) in prompt.tokens.chunks(CHUNK).enumerate() {
        let start = (i * CHUNK) as u32;
        batch.clear();
        batch.push_sequence(tokens, start, &table, block_tokens, Logits::None);
        let wanted = prompt
            .rows
            .iter()
            .filter_map(|row| row.0.checked_sub(start));
        batch.logit_rows = wanted
            .filter(|&row| (row as usize) < tokens.len())
            .collect();
        model.forward(&batch).expect("a forward pass");
        let logits = model.logits().expect("logits");
        rows.extend((0..logits.rows()).map(|row| logits.row(row).to_vec()));
    }
    assert_eq!(rows.len(), prompt.rows.len());
    rows
}

/// Ids of the ten highest logits.
fn order(logits: &[f32]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.select_nth_unstable_by(10, |&a, &b| logits[b].total_cmp(&logits[a]));
    ids.truncate(10);
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    ids
}

/// Kullback-Leibler divergence in nats of `found` from the fixture's row, over the row's ids and all other tokens as one more.
fn divergence(row: &Row, found: &[f32]) -> f64 {
    let max = f64::from(found.iter().copied().fold(f32::MIN, f32::max));
    let sum: f64 = found.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    let log_sum_exp = max + sum.ln();
    let (mut p_rest, mut q_rest, mut divergence) = (1.0, 1.0, 0.0);
    for (&id, &logit) in row.3.iter().zip(&row.4) {
        let log_p = f64::from(logit) - row.2;
        let log_q = f64::from(found[id]) - log_sum_exp;
        divergence += log_p.exp() * (log_p - log_q);
        p_rest -= log_p.exp();
        q_rest -= log_q.exp();
    }
    let (p_rest, q_rest) = (p_rest.max(1e-12), q_rest.max(1e-12));
    divergence + p_rest * (p_rest / q_rest).ln()
}
