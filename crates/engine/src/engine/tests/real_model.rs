//! The same promises with a real graph and the CPU backend: a tiny Llama with random weights.

use andante_compute::{CpuBackend, CpuConfig};
use andante_gguf::Format;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

/// Two layers of 64, two query heads on one KV head.
pub(super) fn tiny_llama() -> GgufFile {
    const HIDDEN: u64 = 64;
    const FEED_FORWARD: u64 = 96;
    const HEAD: u64 = 32;
    let mut rng = Pcg64::seed_from_u64(11);
    let mut weights = |cols: u64, rows: u64| -> Vec<f32> {
        let scale = 3.0 / (cols as f32).sqrt();
        (0..cols * rows)
            .map(|_| ((rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale)
            .collect()
    };
    let mut file = GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("llama.block_count", 2_u32)
        .metadata("llama.context_length", 512_u32)
        .metadata("llama.embedding_length", HIDDEN as u32)
        .metadata("llama.feed_forward_length", FEED_FORWARD as u32)
        .metadata("llama.attention.head_count", 2_u32)
        .metadata("llama.attention.head_count_kv", 1_u32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5_f32);
    let mut tensor = |name: &str, cols: u64, rows: u64| {
        let values = if rows == 1 {
            vec![1.0; cols as usize]
        } else {
            weights(cols, rows)
        };
        let shape = if rows == 1 {
            vec![cols]
        } else {
            vec![cols, rows]
        };
        let format = if rows == 1 { Format::F32 } else { Format::Q8_0 };
        file = std::mem::take(&mut file).tensor_f32(name, &shape, format, &values);
    };
    tensor("token_embd.weight", HIDDEN, VOCAB as u64);
    tensor("output_norm.weight", HIDDEN, 1);
    for layer in 0..2 {
        for (name, cols, rows) in [
            ("attn_norm", HIDDEN, 1),
            ("attn_q", HIDDEN, 2 * HEAD),
            ("attn_k", HIDDEN, HEAD),
            ("attn_v", HIDDEN, HEAD),
            ("attn_output", 2 * HEAD, HIDDEN),
            ("ffn_norm", HIDDEN, 1),
            ("ffn_gate", HIDDEN, FEED_FORWARD),
            ("ffn_up", HIDDEN, FEED_FORWARD),
            ("ffn_down", FEED_FORWARD, HIDDEN),
        ] {
            tensor(&format!("blk.{layer}.{name}.weight"), cols, rows);
        }
    }
    GgufFile::from_bytes(file.finish()).expect("a file just written")
}

pub(super) fn rig(file: &GgufFile, config: &EngineConfig, threads: usize) -> Rig {
    let backend = CpuBackend::new(CpuConfig {
        threads: Some(threads),
        ..CpuConfig::default()
    })
    .expect("threads");
    let model = andante_model::load(file, backend, &mut |_, _| {}).expect("a valid model");
    let clock = Arc::new(VirtualClock::default());
    let (engine, handle) = Engine::new(
        model,
        text_stack(),
        config,
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .expect("valid");
    Rig {
        engine,
        handle,
        clock,
    }
}

#[test]
fn answers_depend_on_neither_neighbours_nor_chunks_nor_the_cache() {
    let file = tiny_llama();
    let prompts: Vec<String> = [5, 70, 150, 150]
        .iter()
        .map(|&length| long(length))
        .collect();
    let sampling = |index: usize| Sampling {
        temperature: [0.0, 0.9][index % 2],
        seed: Some(index as u64),
        ignore_eos: true,
        logprobs: Some(3),
        ..greedy(10)
    };
    let events = |mut stream: EventStream| -> Vec<Event> {
        std::iter::from_fn(|| stream.try_recv()).collect()
    };
    let deltas = |events: &[Event]| -> Vec<Event> {
        events
            .iter()
            .filter(|event| matches!(event, Event::Token(_)))
            .cloned()
            .collect()
    };
    let alone: Vec<_> = (0..prompts.len())
        .map(|index| {
            let mut rig = rig(&file, &small(), 1);
            let stream = rig.submit(&prompts[index], sampling(index));
            rig.settle();
            deltas(&events(stream))
        })
        .collect();
    assert!(alone.iter().all(|deltas| !deltas.is_empty()));
    assert_ne!(alone[2], alone[3], "they differ in their temperature");
    for (chunk, threads, mode) in [
        (64, 2, Mode::Mix),
        (7, 1, Mode::Mix),
        (33, 2, Mode::HandOff),
    ] {
        let config = EngineConfig {
            prefill_chunk: chunk,
            max_queue: 10,
            mode,
            ..small()
        };
        let mut rig = rig(&file, &config, threads);
        for round in 0..2 {
            let streams: Vec<_> = (0..prompts.len())
                .map(|i| rig.submit(&prompts[i], sampling(i)))
                .collect();
            rig.settle();
            for (index, stream) in streams.into_iter().enumerate() {
                let events = events(stream);
                // Text and log-probabilities, to the bit.
                assert_eq!(
                    deltas(&events),
                    alone[index],
                    "prompt {index}, chunks of {chunk}, round {round}"
                );
                let cached = Answer::from_events(&events).cached.expect("it has started");
                assert!(
                    round == 0 || cached as usize + 64 >= prompts[index].len(),
                    "{cached} cached"
                );
            }
        }
        rig.assert_empty();
    }
}
