//! The fastest that a machine's memory and instructions allow a model to be (the roofline model of Williams, Waterman and
//! Patterson, 2009): what a step must read and multiply, divided by the measured peaks.
//!
//! Counted are the bytes of the weights as the file has them, keys and values, and the products with weights. Attention's
//! own products are not, so that the ceiling of a long prompt is a little too high.

use andante_compute::Peak;
use andante_gguf::{Format, GgufFile};
use andante_model::Model;

use super::{CHUNK, Case, Measure};

/// What a model makes a step read and multiply.
pub(super) struct Demand {
    /// Weights that every row of a step is multiplied by.
    layers: Weights,
    /// Weights of all experts, of which a row uses the fraction `chosen`.
    experts: Weights,
    chosen: f64,
    /// The output matrix, which only rows with logits are multiplied by.
    output: Weights,
    /// Bytes of one token's keys and values in each layer.
    kv_bytes: f64,
    /// How far back each layer's attention reaches, in tokens.
    windows: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Default)]
struct Weights {
    bytes: f64,
    /// Numbers of blocks of integers, those that are floats, and those in bfloat16.
    int8: f64,
    float: f64,
    bf16: f64,
}

/// What must be read and multiplied, in bytes and in products.
#[derive(Clone, Copy, Default)]
struct Work {
    bytes: f64,
    int8: f64,
    float: f64,
    bf16: f64,
}

/// One forward pass.
struct Step {
    rows: f64,
    /// Rows whose logits are wanted.
    logits: f64,
    sequences: f64,
    /// Tokens of each sequence.
    depth: f64,
}

/// A limit and what it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ceiling {
    pub(super) tokens_per_s: f64,
    /// Bytes read for each token.
    pub(super) bytes_per_token: f64,
    /// Whether reading memory takes longer than multiplying.
    pub(super) by_memory: bool,
}

impl Ceiling {
    /// What the machine lacks to be faster.
    pub(super) fn limit(&self) -> &'static str {
        if self.by_memory {
            "memory"
        } else {
            "arithmetic"
        }
    }
}

impl Demand {
    pub(super) fn of(file: &GgufFile, model: &dyn Model) -> Self {
        let (info, layout) = (model.info(), model.kv_layout());
        let metadata = file.metadata();
        let number = |key: &str| {
            let key = format!("{}.{key}", info.architecture);
            metadata.u32(&key).ok().flatten().map(f64::from)
        };
        let mut demand = Self {
            layers: Weights::default(),
            experts: Weights::default(),
            chosen: number("expert_used_count")
                .zip(number("expert_count"))
                .map_or(1.0, |(used, all)| used / all),
            output: Weights::default(),
            kv_bytes: layout.block_bytes as f64
                / f64::from(layout.block_tokens)
                / info.layers as f64,
            windows: info.windows.clone(),
        };
        let has_output = file.tensor("output.weight").is_some();
        for tensor in file.tensors() {
            let part = match tensor.name {
                // Only single rows are read, unless it is the output matrix too.
                "token_embd.weight" if has_output => continue,
                "token_embd.weight" | "output.weight" => &mut demand.output,
                _ if tensor.shape.len() == 3 => &mut demand.experts,
                _ => &mut demand.layers,
            };
            part.bytes += tensor.data.len() as f64;
            if tensor.shape.len() > 1 {
                match tensor.format {
                    Format::F32 | Format::F16 => part.float += tensor.len() as f64,
                    Format::BF16 => part.bf16 += tensor.len() as f64,
                    _ => part.int8 += tensor.len() as f64,
                }
            }
        }
        demand
    }

    pub(super) fn ceiling(&self, case: Case, peak: &Peak) -> Ceiling {
        let mut work = Work::default();
        let tokens = match case.what {
            Measure::Prompt(tokens) => {
                for first in (0..tokens).step_by(CHUNK as usize) {
                    let end = tokens.min(first + CHUNK);
                    let step = Step {
                        rows: f64::from(end - first),
                        logits: f64::from(u8::from(end == tokens)),
                        sequences: 1.0,
                        depth: f64::from(case.depth + end),
                    };
                    self.add(&mut work, &step);
                }
                f64::from(tokens)
            }
            Measure::Generation { tokens, batch } => {
                let batch = f64::from(batch);
                let step = Step {
                    rows: batch,
                    logits: batch,
                    sequences: batch,
                    depth: f64::from(case.depth) + f64::from(tokens) / 2.0,
                };
                self.add(&mut work, &step);
                batch
            }
        };
        let reading = work.bytes / peak.read_bytes_per_s;
        let multiplying = work.int8 / peak.int8_macs_per_s
            + work.float / peak.float_macs_per_s
            + work.bf16 / peak.bf16_macs_per_s;
        Ceiling {
            tokens_per_s: tokens / reading.max(multiplying),
            bytes_per_token: work.bytes / tokens,
            by_memory: reading > multiplying,
        }
    }

    fn add(&self, work: &mut Work, step: &Step) {
        // Rows choose independently: an expert that none of them chose is not read.
        let read = 1.0 - (1.0 - self.chosen).powf(step.rows);
        work.bytes += self.layers.bytes + self.experts.bytes * read;
        work.bytes += self.output.bytes * step.logits.min(1.0);
        for window in &self.windows {
            let seen = window.map_or(step.depth, |window| step.depth.min(f64::from(window)));
            work.bytes += step.sequences * seen * self.kv_bytes;
        }
        let products = |count: fn(&Weights) -> f64| {
            (count(&self.layers) + count(&self.experts) * self.chosen) * step.rows
                + count(&self.output) * step.logits
        };
        work.int8 += products(|weights| weights.int8);
        work.float += products(|weights| weights.float);
        work.bf16 += products(|weights| weights.bf16);
    }
}

#[cfg(test)]
mod tests {
    use andante_compute::{Isa, Peak};

    use super::super::{Case, Measure};
    use super::{Demand, Weights};

    fn peak() -> Peak {
        Peak {
            threads: 1,
            isa: Isa::portable(),
            read_bytes_per_s: 1000.0,
            int8_macs_per_s: 10_000.0,
            float_macs_per_s: 1000.0,
            bf16_macs_per_s: 500.0,
        }
    }

    fn weights(bytes: f64, int8: f64, float: f64) -> Weights {
        Weights {
            bytes,
            int8,
            float,
            bf16: 0.0,
        }
    }

    /// Two layers, one of which sees 4 tokens; a token's keys and values have one byte a layer.
    fn demand() -> Demand {
        Demand {
            layers: weights(100.0, 200.0, 0.0),
            experts: weights(0.0, 0.0, 0.0),
            chosen: 1.0,
            output: weights(50.0, 100.0, 0.0),
            kv_bytes: 1.0,
            windows: vec![None, Some(4)],
        }
    }

    fn generation(batch: u32, depth: u32) -> Case {
        Case {
            what: Measure::Generation { tokens: 2, batch },
            depth,
        }
    }

    #[test]
    fn one_token_reads_all_weights_and_what_attention_sees() {
        let ceiling = demand().ceiling(generation(1, 9), &peak());
        // 100 + 50 of weights, 10 + 4 of keys and values.
        assert!(ceiling.by_memory);
        assert!((ceiling.bytes_per_token - 164.0).abs() < 1e-9);
        assert!((ceiling.tokens_per_s - 1000.0 / 164.0).abs() < 1e-9);
    }

    #[test]
    fn many_tokens_share_the_weights_until_products_take_longer() {
        let two = demand().ceiling(generation(2, 9), &peak());
        assert!((two.bytes_per_token - (150.0 + 28.0) / 2.0).abs() < 1e-9);
        let prompt = Case {
            what: Measure::Prompt(600),
            depth: 0,
        };
        let ceiling = demand().ceiling(prompt, &peak());
        assert!(!ceiling.by_memory);
        // 200 products for each of 600 tokens and 100 for the last token's logits, 10,000 a second.
        assert!((ceiling.tokens_per_s - 600.0 / 12.01).abs() < 1e-9);
    }

    #[test]
    fn only_chosen_experts_are_read_and_floats_have_their_own_peak() {
        let demand = Demand {
            layers: weights(0.0, 0.0, 0.0),
            experts: weights(800.0, 0.0, 400.0),
            chosen: 0.25,
            output: weights(0.0, 0.0, 0.0),
            kv_bytes: 0.0,
            windows: vec![None],
        };
        let one = demand.ceiling(generation(1, 0), &peak());
        assert!((one.bytes_per_token - 200.0).abs() < 1e-9);
        // Two rows leave (3/4)^2 of the experts alone.
        let two = demand.ceiling(generation(2, 0), &peak());
        assert!((two.bytes_per_token - 800.0 * (1.0 - 0.5625) / 2.0).abs() < 1e-9);
        let many = demand.ceiling(generation(100, 0), &peak());
        assert!(!many.by_memory);
        assert!((many.tokens_per_s - 10.0).abs() < 1e-6);
        let mut demand = demand;
        let experts = &mut demand.experts;
        (experts.bf16, experts.float) = (experts.float, 0.0);
        let many = demand.ceiling(generation(100, 0), &peak());
        assert!((many.tokens_per_s - 5.0).abs() < 1e-6);
    }
}
