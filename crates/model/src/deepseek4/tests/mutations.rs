//! Plausible mistakes, each of which the reference's logits must give away: what a graph would compute that makes the mistake is
//! computed by the right graph from a file or from facts that are wrong in the same way, or by a backend that is ([`mistaken`]).

use super::mistaken::{Mistake, Mistaken};
use super::portable::{Entry, File, INDEX_HEADS, VOCAB, Values};
use super::reference::{LOGITS, TOLERANCE};
use super::*;
use crate::deepseek4::spec::{Ropes, Spec};
use andante_compute::{RopeScaling, RopeSpec, RopeStyle, RopeTable};
use andante_gguf::{Format, Value};

/// Streams of the residual.
const STREAMS: usize = 4;
/// Rows of a hyper-connection's matrix before those of `comb`.
const BEFORE_COMB: usize = 2 * STREAMS;
/// So low that its exponential is 0.
const NEVER: f32 = -1e30;

type OfFile = fn(&mut File);
type OfSpec = fn(&mut Spec);

const OF_FILE: [(&str, OfFile); 24] = [
    ("compressed layers with the base of the others", |file| {
        file.set("attention.compress_rope_freq_base", Value::F32(10_000.0));
    }),
    ("no YaRN", |file| file.set("rope.scaling.type", "none")),
    ("post without its factor 2", |file| {
        // Half of what is multiplied by it.
        for part in ["attn_output_b", "ffn_down_exps", "ffn_down_shexp"] {
            file.change(part, |_, x| x / 2.0);
        }
    }),
    ("one Sinkhorn round", |file| sinkhorn(file, 1)),
    ("19 Sinkhorn rounds", |file| sinkhorn(file, 19)),
    ("comb transposed", transpose_comb),
    ("no ape", |file| file.change("_ape", |_, _| 0.0)),
    ("series of windows exchanged", swap_series),
    ("windows that do not overlap", |file| {
        let of_first_series =
            |width: usize| move |i: usize, x: f32| if i % (2 * width) < width { NEVER } else { x };
        for layer in [1, 3] {
            file.change(
                &format!("blk.{layer}.attn_compressor_ape"),
                of_first_series(128),
            );
            file.change(
                &format!("blk.{layer}.indexer_compressor_ape"),
                of_first_series(128),
            );
        }
    }),
    ("a window of one more", |file| window(file, 33)),
    ("a window of one less", |file| window(file, 31)),
    ("one row more", |file| top_k(file, 9)),
    ("one row less", |file| top_k(file, 7)),
    ("all rows", |file| top_k(file, 1000)),
    ("scores below 0", |file| {
        // Of x and -x one is above 0: max(0, x) - max(0, -x) is x.
        negated_too(file, "indexer.attn_q_b");
        negated_too(file, "indexer.proj");
        let heads = Value::U32(2 * INDEX_HEADS as u32);
        file.set("attention.indexer.head_count", heads);
    }),
    ("no sinks", |file| file.change("attn_sinks", |_, _| NEVER)),
    ("no clamps", |file| {
        file.set("swiglu_clamp_exp", Value::F32(0.0));
        file.set("swiglu_clamp_shexp", Value::F32(0.0));
    }),
    ("no clamp of the shared expert", |file| {
        file.set("swiglu_clamp_shexp", Value::F32(0.0));
    }),
    ("no table of experts", |file| {
        file.set("hash_layer_count", Value::U32(0));
        file.tensors.retain(|entry| !entry.name.contains("tid2eid"));
        file.tensors.push(Entry {
            name: "blk.0.exp_probs_b.bias".to_owned(),
            shape: vec![4],
            values: Values::Floats(vec![0.0; 4]),
        });
    }),
    ("no bias of the router", |file| {
        file.change("exp_probs_b", |_, _| 0.0);
    }),
    ("shares that are not normalised", |file| {
        file.set("expert_weights_norm", Value::Bool(false));
    }),
    ("no factor on shares", |file| {
        file.set("expert_weights_scale", Value::F32(1.0));
    }),
    ("no shared expert", |file| {
        file.change("ffn_down_shexp", |_, _| 0.0);
    }),
    ("the mean of the streams for the head", |file| {
        file.change("output_hc_fn", |_, _| 0.0);
        // The logit of a quarter.
        file.change("output_hc_base", |_, _| (1.0_f32 / 3.0).ln());
    }),
];

const OF_SPEC: [(&str, OfSpec); 5] = [
    ("YaRN in all layers", |spec| {
        spec.ropes[0] = Turns {
            base: 10_000.0,
            ..Turns::COMPRESSED
        }
        .ropes();
    }),
    ("YaRN's growth of the magnitude", |spec| {
        spec.ropes[1] = Turns {
            growth: true,
            ..Turns::COMPRESSED
        }
        .ropes();
    }),
    ("the first values turn", |spec| {
        for (ropes, turns) in spec.ropes.iter_mut().zip([Turns::PLAIN, Turns::COMPRESSED]) {
            *ropes = Turns {
                at_end: false,
                ..turns
            }
            .ropes();
        }
    }),
    ("halves turn", |spec| {
        for (ropes, turns) in spec.ropes.iter_mut().zip([Turns::PLAIN, Turns::COMPRESSED]) {
            *ropes = Turns {
                style: RopeStyle::Neox,
                ..turns
            }
            .ropes();
        }
    }),
    ("outputs are not turned back", |spec| {
        for ropes in &mut spec.ropes {
            // So slowly that it does not turn.
            let still = RopeSpec {
                scaling: RopeScaling::Linear { factor: 1e30 },
                ..Turns::PLAIN.spec(128)
            };
            ropes.back = RopeTable::new(&still).at_end();
        }
    }),
];

/// How a layer turns.
#[derive(Clone, Copy)]
struct Turns {
    base: f64,
    yarn: bool,
    growth: bool,
    at_end: bool,
    style: RopeStyle,
}

impl Turns {
    const PLAIN: Self = Self {
        base: 10_000.0,
        yarn: false,
        growth: false,
        at_end: true,
        style: RopeStyle::Interleaved,
    };
    const COMPRESSED: Self = Self {
        base: 160_000.0,
        yarn: true,
        ..Self::PLAIN
    };

    fn spec(self, head_dim: usize) -> RopeSpec<'static> {
        let factor = 16.0_f64;
        let scaling = RopeScaling::Yarn {
            factor,
            original_context: 1024.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            whole_pairs: true,
            attention_factor: if self.growth {
                1.0
            } else {
                1.0 / (1.0 + 0.1 * factor.ln())
            },
        };
        RopeSpec {
            head_dim,
            rotary_dim: 64,
            style: self.style,
            base: self.base,
            scaling: if self.yarn {
                scaling
            } else {
                RopeScaling::None
            },
            factors: None,
        }
    }

    fn ropes(self) -> Ropes {
        let table = |head_dim| {
            let table = RopeTable::new(&self.spec(head_dim));
            if self.at_end { table.at_end() } else { table }
        };
        Ropes {
            forward: table(128),
            back: table(128).inverse(),
            index: table(128),
        }
    }
}

fn sinkhorn(file: &mut File, rounds: u32) {
    file.set("hyper_connection.sinkhorn_iterations", Value::U32(rounds));
}

fn window(file: &mut File, tokens: u32) {
    file.set("attention.sliding_window", Value::U32(tokens));
}

fn top_k(file: &mut File, rows: u32) {
    file.set("attention.indexer.top_k", Value::U32(rows));
}

/// Exchanges the products that become `comb[i, j]` and `comb[j, i]`. Sinkhorn's rounds begin the other way round, but end alike.
fn transpose_comb(file: &mut File) {
    for half in ["attn", "ffn"] {
        permute(
            file,
            &format!("hc_{half}_fn"),
            BEFORE_COMB + STREAMS * STREAMS,
            transposed,
        );
        permute(
            file,
            &format!("hc_{half}_base"),
            BEFORE_COMB + STREAMS * STREAMS,
            transposed,
        );
    }
}

fn transposed(row: usize) -> usize {
    match row.checked_sub(BEFORE_COMB) {
        None => row,
        Some(at) => BEFORE_COMB + at % STREAMS * STREAMS + at / STREAMS,
    }
}

/// Exchanges what a token gives to its own window and to the next one.
fn swap_series(file: &mut File) {
    for layer in [1, 3] {
        for name in ["attn_compressor", "indexer_compressor"] {
            let swapped = |row: usize| (row + 128) % 256;
            permute(file, &format!("blk.{layer}.{name}_kv"), 256, swapped);
            permute(file, &format!("blk.{layer}.{name}_gate"), 256, swapped);
            // Of the ape each row is of all channels.
            let of_ape = |at: usize| at / 256 * 256 + (at + 128) % 256;
            permute(file, &format!("blk.{layer}.{name}_ape"), 4 * 256, of_ape);
        }
    }
}

/// Gives tensors called so as many rows again, of the opposite sign.
fn negated_too(file: &mut File, part: &str) {
    for entry in &mut file.tensors {
        if let Values::Floats(values) = &mut entry.values
            && entry.name.contains(part)
        {
            let negated: Vec<f32> = values.iter().map(|x| -x).collect();
            values.extend(negated);
            entry.shape[1] *= 2;
        }
    }
}

/// Takes `rows` rows of each tensor called so from elsewhere in it.
fn permute(file: &mut File, part: &str, rows: usize, from: impl Fn(usize) -> usize) {
    let mut changed = false;
    for Entry { name, values, .. } in &mut file.tensors {
        if let Values::Floats(values) = values
            && name.contains(part)
        {
            changed = true;
            let old = values.clone();
            let width = old.len() / rows;
            for (row, new) in values.chunks_exact_mut(width).enumerate() {
                new.copy_from_slice(&old[from(row) * width..][..width]);
            }
        }
    }
    assert!(changed, "there are tensors called {part}");
}

/// The largest difference from the reference's logits.
fn difference<B: Ops>(mut model: Deepseek4<B>) -> f32 {
    let (tokens, blocks) = (portable::ids(300), table(10, 0));
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let found = sequence.run(&mut model, 0, &[300]);
    let expected = floats(LOGITS);
    assert_eq!(found.len(), 300 * VOCAB as usize);
    let pairs = found.iter().zip(&expected);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_give_every_mistake_away() {
    let mut missed = Vec::new();
    let mut judge = |what: &str, difference: f32| {
        // Not a number is a mistake that shows.
        if difference <= TOLERANCE {
            missed.push((what.to_owned(), difference));
        }
    };
    for (what, change) in OF_FILE {
        let mut file = File::new();
        change(&mut file);
        let model = try_load(file.bytes(Format::F32), exact(2)).unwrap();
        judge(what, difference(reserved(model)));
    }
    for (what, change) in OF_SPEC {
        let mut model = model(exact(2));
        change(&mut model.spec);
        judge(what, difference(model));
    }
    let file = GgufFile::from_bytes(portable::gguf()).unwrap();
    for mistake in Mistake::ALL {
        let backend = Mistaken::new(CpuBackend::new(exact(2)).unwrap(), Some(mistake));
        let model = load(&Keys::new(&file).unwrap(), backend, &mut |_, _| {}).unwrap();
        judge(&format!("{mistake:?}"), difference(reserved(model)));
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// What makes mistakes makes none unless asked to.
#[test]
fn without_a_mistake_it_is_the_model() {
    let mut turning = model(exact(2));
    turning.spec.ropes = [Turns::PLAIN.ropes(), Turns::COMPRESSED.ropes()];
    assert!(difference(turning) <= TOLERANCE);
    let file = GgufFile::from_bytes(portable::gguf()).unwrap();
    let backend = Mistaken::new(CpuBackend::new(exact(2)).unwrap(), None);
    let plain = load(&Keys::new(&file).unwrap(), backend, &mut |_, _| {}).unwrap();
    assert!(difference(reserved(plain)) <= TOLERANCE);
}
