//! DeepSeek V4: hyper-connections, attention over a window and compressed rows, experts by table and by score.
//!
//! The graph follows Hugging Face transformers (`models/deepseek_v4`); names of keys and tensors are those of llama.cpp's converter,
//! which ds4's files share. Every dimension comes from the file.
//!
//! What a sequence leaves behind: a record for each KV block ([`layout::Layout`]) with the compressed rows of its tokens, and one
//! record of running state with the keys of the window and the tokens that the next compressed rows are made of.

mod layout;
mod load;
mod mtp;
mod names;
mod outline;
mod pass;
mod spec;

use andante_compute::{BLOCK_TOKENS, Batch, Deepseek4 as Ops, KvShape};

use crate::decoder::check;
use crate::identity::{self, Fingerprint};
use crate::wanted::Wanted;
use crate::{KvLayout, Limits, Logits, Model, ModelError, ModelInfo, States};
use layout::Layout;
use load::Weights;
use pass::{Memory, Pass};
use spec::Spec;

pub(crate) use load::load;
pub(crate) use outline::outline;

/// A DeepSeek V4 on backend `B`.
pub(crate) struct Deepseek4<B: Ops> {
    spec: Spec,
    layout: Layout,
    weights: Weights<B>,
    backend: B,
    info: ModelInfo,
    fingerprint: Fingerprint,
    memory: Option<Memory<B>>,
    wanted: Wanted,
    #[cfg(test)]
    mtp: Option<mtp::Mtp<B>>,
    #[cfg(test)]
    trace: Option<tests::Trace>,
}

const NO_MEMORY: &str = "reserve comes first";

impl<B: Ops> Model for Deepseek4<B> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv_layout(&self) -> KvLayout {
        self.layout.kv(&self.spec)
    }

    fn reserve(&mut self, limits: Limits) -> Result<(), ModelError> {
        let memory = Memory::new(&mut self.backend, &self.spec, &self.layout, limits)?;
        self.memory = Some(memory);
        Ok(())
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let memory = self.memory.as_mut().expect(NO_MEMORY);
        check(batch, &memory.limits, self.spec.vocab);
        self.wanted.set(batch);
        if !batch.is_empty() {
            Pass {
                backend: &mut self.backend,
                spec: &self.spec,
                layout: &self.layout,
                weights: &self.weights,
                batch,
                wanted_rows: &self.wanted.rows,
                #[cfg(test)]
                trace: self.trace.as_mut(),
            }
            .run(memory);
        }
        Ok(())
    }

    fn logits(&mut self) -> Result<Logits<'_>, ModelError> {
        let memory = self.memory.as_ref().expect(NO_MEMORY);
        self.wanted
            .logits(&mut self.backend, &memory.logits, self.spec.vocab)
    }

    fn states(&mut self) -> Result<States<'_>, ModelError> {
        let memory = self.memory.as_ref().expect(NO_MEMORY);
        self.wanted
            .states(&mut self.backend, &memory.wanted_normed, self.spec.hidden)
    }

    fn read_block(&self, block: u32, out: &mut [u8]) {
        let memory = self.memory.as_ref().expect(NO_MEMORY);
        self.backend.records_read(&memory.blocks, block, out);
    }

    fn write_block(&mut self, block: u32, bytes: &[u8]) {
        let memory = self.memory.as_mut().expect(NO_MEMORY);
        self.backend.records_write(&mut memory.blocks, block, bytes);
    }

    fn copy_state(&mut self, from: u32, to: u32) {
        let memory = self.memory.as_mut().expect(NO_MEMORY);
        self.backend.records_copy(&mut memory.states, from, to);
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        let memory = self.memory.as_ref().expect(NO_MEMORY);
        self.backend.records_read(&memory.states, slot, out);
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        let memory = self.memory.as_mut().expect(NO_MEMORY);
        self.backend.records_write(&mut memory.states, slot, bytes);
    }

    fn kv_identity(&self) -> [u8; 32] {
        let Layout {
            block_bytes,
            state_bytes,
            ..
        } = self.layout;
        let sizes = [block_bytes, state_bytes, self.spec.block_tokens];
        identity::of_blocks(&self.fingerprint, &sizes, &self.info.kv_format)
    }
}

/// How compressed rows are kept, and of which arithmetic: what the backend says of plain keys and values holds here too.
fn kv_format<B: Ops>(backend: &B, spec: &Spec, layout: &Layout) -> String {
    let shape = KvShape {
        layers: spec.layers.len(),
        kv_heads: 1,
        head_dim: spec.head_dim,
        block_tokens: BLOCK_TOKENS,
    };
    let (keys, index) = (layout.keys.name(), layout.index.name());
    let arithmetic = backend.kv_format(&shape);
    format!("{keys} keys, {index} index rows ({arithmetic})")
}

#[cfg(test)]
mod tests;
