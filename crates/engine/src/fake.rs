//! A model without weights, for tests and simulations of everything above the model.
//!
//! It keeps one token in each KV slot, with a hash of the slots before it, and finds a sequence's tokens again only through
//! its block table, so a wrong slot, a wrong table, a block given away too early or copied to where it does not belong shows
//! as wrong tokens or in an assertion. What follows is a hash of all those tokens, or a scripted answer. Nothing depends on
//! the neighbours of a row or on how a prompt was cut.
//!
//! One with a [window](FakeModel::window) has running state: the last tokens that it has seen, in no block, which what follows
//! depends on too. A state that is lacking, of another sequence or of another place gives wrong tokens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use andante_model::{Batch, KvLayout, Limits, Logits, Model, ModelError, ModelInfo, States};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::clock::Clock;
use crate::store::{Span, Store, StoreStats, Transfer};

/// The hash picks among the ids of the letters a to z in a vocabulary that begins with the 256 bytes.
const LETTERS: std::ops::Range<u32> = 97..123;

/// What follows a sequence, if it knows.
type Author = Box<dyn Fn(&[u32]) -> Option<u32> + Send>;

/// The logit of an author's token: no temperature makes another one likely.
const CERTAIN: f32 = 1e4;

/// See the module.
pub struct FakeModel {
    info: ModelInfo,
    block_tokens: u32,
    batch_tokens: usize,
    kv: Memory,
    /// Tokens of a state; 0: it has none.
    window: usize,
    states_kept: Vec<WindowState>,
    scripts: Vec<(Vec<u32>, Vec<u32>)>,
    author: Author,
    poison: Option<u32>,
    forwards_left: Option<u64>,
    on_forward: Box<dyn FnMut(&Batch) + Send>,
    logits: Vec<f32>,
    states: Vec<f32>,
}

/// Width of its hidden states.
const HIDDEN: usize = 4;

impl FakeModel {
    /// A model of `vocab` tokens (at least 123) and a context of 4,096, in KV blocks of 16 tokens.
    #[must_use]
    pub fn new(vocab: usize) -> Self {
        assert!(
            vocab >= LETTERS.end as usize,
            "the vocabulary holds the letters"
        );
        Self {
            info: ModelInfo {
                architecture: "fake".into(),
                name: Some("Fake".into()),
                vocab,
                context: 4096,
                layers: 1,
                hidden: HIDDEN,
                heads: 1,
                kv_heads: 1,
                head_dim: 1,
                windows: vec![None],
                parameters: 1,
                weight_bytes: 1,
                backend: "none".into(),
                kv_format: "tokens".into(),
                pooling: None,
                row_granule: 1,
            },
            block_tokens: 16,
            batch_tokens: 0,
            kv: Memory::default(),
            window: 0,
            states_kept: Vec::new(),
            scripts: Vec::new(),
            author: Box::new(|_| None),
            poison: None,
            forwards_left: None,
            on_forward: Box::new(|_| {}),
            logits: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Tokens in a KV block.
    #[must_use]
    pub fn block_tokens(mut self, tokens: u32) -> Self {
        self.block_tokens = tokens;
        self
    }

    /// Gives it running state: the last `tokens` tokens of each sequence.
    #[must_use]
    pub fn window(mut self, tokens: usize) -> Self {
        self.window = tokens;
        self
    }

    /// The architecture that it claims to be of.
    #[must_use]
    pub fn architecture(mut self, name: &str) -> Self {
        self.info.architecture = name.to_owned();
        self
    }

    /// The context that it claims to have been trained for.
    #[must_use]
    pub fn context(mut self, tokens: u32) -> Self {
        self.info.context = tokens;
        self
    }

    /// Makes `answer` the most likely continuation of every sequence that ends with `prompt`, and letters after it.
    #[must_use]
    pub fn script(mut self, prompt: &[u32], answer: &[u32]) -> Self {
        self.scripts.push((prompt.to_vec(), answer.to_vec()));
        self
    }

    /// Asks `author` what follows a sequence, before any script; what it says is followed at every temperature.
    #[must_use]
    pub fn author(mut self, author: impl Fn(&[u32]) -> Option<u32> + Send + 'static) -> Self {
        self.author = Box::new(author);
        self
    }

    /// Gives logits that are not numbers to every sequence that holds this token.
    #[must_use]
    pub fn poison(mut self, token: u32) -> Self {
        self.poison = Some(token);
        self
    }

    /// Lets every forward pass after the first `passes` fail.
    #[must_use]
    pub fn fail_after(mut self, passes: u64) -> Self {
        self.forwards_left = Some(passes);
        self
    }

    /// Calls `hook` in every forward pass: to wait, to record, to advance a [`VirtualClock`].
    #[must_use]
    pub fn on_forward(mut self, hook: impl FnMut(&Batch) + Send + 'static) -> Self {
        self.on_forward = Box::new(hook);
        self
    }

    /// A store of this model's KV, empty at first. Each of its transfers takes `unit_us` and `block_us` a block on `clock`.
    #[must_use]
    pub fn store(&self, clock: Arc<VirtualClock>, unit_us: u64, block_us: u64) -> FakeStore {
        FakeStore {
            kv: self.kv.clone(),
            block_tokens: self.block_tokens,
            state_bytes: self.state_bytes(),
            states: BTreeMap::new(),
            clock,
            unit_us,
            block_us,
            rng: Pcg64::seed_from_u64(0),
            fails_one_in: 0,
            late_one_in: 0,
            loads_stick: false,
            blocks: BTreeMap::new(),
            pending: None,
        }
    }

    /// As the [`Model`] that an engine takes.
    #[must_use]
    pub fn boxed(self) -> Box<dyn Model> {
        Box::new(self)
    }

    /// The answer of `tokens` letters that follows `prompt` when nothing is scripted: what an engine must give at
    /// temperature 0.
    #[must_use]
    pub fn letters(prompt: &[u32], tokens: usize) -> Vec<u32> {
        Self::letters_in_window(prompt, tokens, 0)
    }

    /// As [`letters`](Self::letters), of a model with this [`window`](Self::window).
    #[must_use]
    pub fn letters_in_window(prompt: &[u32], tokens: usize, window: usize) -> Vec<u32> {
        let mut sequence = prompt.to_vec();
        for _ in 0..tokens {
            let mut state = WindowState::default();
            for &token in &sequence {
                state.push(token, window);
            }
            sequence.push(letter(hash(&sequence) ^ state.hash()));
        }
        sequence.split_off(prompt.len())
    }

    /// The hidden state of a sequence's last token: of numbers from -1 to 1.
    #[must_use]
    pub fn state(sequence: &[u32]) -> [f32; HIDDEN] {
        let seed = hash(sequence);
        std::array::from_fn(|i| (mix(seed ^ i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0)
    }

    /// What `sequence` is most likely followed by.
    fn following(&self, sequence: &[u32], state: u64) -> u32 {
        let scripted = |(prompt, answer): &(Vec<u32>, Vec<u32>)| {
            (0..answer.len())
                .rev()
                .find(|&given| {
                    sequence
                        .strip_suffix(&answer[..given])
                        .is_some_and(|before| before.ends_with(prompt))
                })
                .map(|given| answer[given])
        };
        self.scripts
            .iter()
            .find_map(scripted)
            .unwrap_or_else(|| letter(hash(sequence) ^ state))
    }

    fn write_kv(&mut self, batch: &Batch) {
        let mut kv = self.kv.lock();
        for sequence in &batch.sequences {
            let table =
                &batch.block_tables[sequence.blocks.start as usize..sequence.blocks.end as usize];
            for row in sequence.rows.start as usize..sequence.rows.end as usize {
                let position = batch.positions[row];
                let slot = slot(table, position, self.block_tokens);
                assert_eq!(
                    slot, batch.slots[row] as usize,
                    "slot and block table disagree"
                );
                let before = match position {
                    0 => 0,
                    _ => {
                        let before = kv[self::slot(table, position - 1, self.block_tokens)];
                        before.expect("no row reads a slot never written").hash
                    }
                };
                kv[slot] = Some(Slot::new(before, batch.tokens[row]));
            }
        }
    }

    fn state_bytes(&self) -> usize {
        if self.window == 0 {
            0
        } else {
            4 * (1 + self.window)
        }
    }

    /// Moves the states of a batch on over its rows; gives the hash of each row's, 0 for a model without.
    fn run_states(&mut self, batch: &Batch) -> Vec<u64> {
        let mut hashes = vec![0; batch.len()];
        if self.window == 0 {
            assert!(batch.states.is_empty(), "it has no running state");
            return hashes;
        }
        assert_eq!(batch.states.len(), batch.sequences.len());
        for (sequence, &slot) in batch.sequences.iter().zip(&batch.states) {
            let state = &mut self.states_kept[slot as usize];
            let rows = sequence.rows.start as usize..sequence.rows.end as usize;
            let tokens = batch.tokens[rows.clone()].iter();
            let seen = tokens.zip(&batch.positions[rows.clone()]);
            for (hash, (&token, &position)) in hashes[rows].iter_mut().zip(seen) {
                if position == 0 {
                    *state = WindowState::default();
                }
                state.push(token, self.window);
                *hash = state.hash();
            }
        }
        hashes
    }

    /// The sequence that ends with `row`, as the KV memory has it.
    fn read_kv(&self, batch: &Batch, row: u32) -> Vec<u32> {
        let sequence = batch
            .sequences
            .iter()
            .find(|s| s.rows.contains(&row))
            .expect("every row has a sequence");
        let table =
            &batch.block_tables[sequence.blocks.start as usize..sequence.blocks.end as usize];
        let kv = self.kv.lock();
        let mut before = 0;
        (0..=batch.positions[row as usize])
            .map(|position| {
                let slot = kv[slot(table, position, self.block_tokens)]
                    .expect("no row reads a slot never written");
                let expected = Slot::new(before, slot.token);
                assert_eq!(
                    slot, expected,
                    "a slot holds what follows the slots before it"
                );
                before = slot.hash;
                slot.token
            })
            .collect()
    }
}

impl Model for FakeModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv_layout(&self) -> KvLayout {
        KvLayout {
            block_tokens: self.block_tokens,
            block_bytes: (self.block_tokens as usize * SLOT_BYTES) as u64,
            state_bytes: self.state_bytes() as u64,
        }
    }

    fn reserve(&mut self, limits: Limits) -> Result<(), ModelError> {
        *self.kv.lock() = vec![None; (limits.blocks * self.block_tokens) as usize];
        self.states_kept = vec![WindowState::default(); limits.running_states as usize];
        self.batch_tokens = limits.batch_tokens as usize;
        self.logits
            .reserve(limits.logit_rows as usize * self.info.vocab);
        Ok(())
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        assert!(
            !batch.is_empty() && batch.len() <= self.batch_tokens,
            "the batch is within the reserved limits"
        );
        (self.on_forward)(batch);
        if let Some(left) = &mut self.forwards_left {
            let Some(fewer) = left.checked_sub(1) else {
                return Err(ModelError::MissingTensor {
                    name: "a scripted failure".into(),
                });
            };
            *left = fewer;
        }
        self.write_kv(batch);
        let states = self.run_states(batch);
        self.logits.clear();
        for &row in &batch.logit_rows {
            let sequence = self.read_kv(batch, row);
            let authored = (self.author)(&sequence);
            let state = states[row as usize];
            let best = authored.unwrap_or_else(|| self.following(&sequence, state));
            let (height, seed) = (authored.map_or(8.0, |_| CERTAIN), hash(&sequence));
            let poisoned = self.poison.is_some_and(|poison| sequence.contains(&poison));
            self.logits
                .extend((0..self.info.vocab as u64).map(|id| match id {
                    _ if poisoned => f32::NAN,
                    _ if id == u64::from(best) => height,
                    _ => (mix(seed ^ id) >> 40) as f32 / (1 << 22) as f32,
                }));
        }
        self.states.clear();
        for &row in &batch.state_rows {
            let sequence = self.read_kv(batch, row);
            let poisoned = self.poison.is_some_and(|poison| sequence.contains(&poison));
            let state = Self::state(&sequence);
            self.states
                .extend(state.map(|x| if poisoned { f32::NAN } else { x }));
        }
        Ok(())
    }

    fn logits(&mut self) -> Result<Logits<'_>, ModelError> {
        Ok(Logits::new(&self.logits, self.info.vocab))
    }

    fn states(&mut self) -> Result<States<'_>, ModelError> {
        Ok(States::new(&self.states, HIDDEN))
    }

    fn read_block(&self, block: u32, out: &mut [u8]) {
        let kv = self.kv.lock();
        let slots = &kv[block_slots(block, self.block_tokens)];
        assert_eq!(out.len(), slots.len() * SLOT_BYTES);
        for (slot, out) in slots.iter().zip(out.chunks_exact_mut(SLOT_BYTES)) {
            let (token, hash) = slot.map_or((u32::MAX, 0), |slot| (slot.token, slot.hash));
            out[..4].copy_from_slice(&token.to_le_bytes());
            out[4..].copy_from_slice(&hash.to_le_bytes());
        }
    }

    fn write_block(&mut self, block: u32, bytes: &[u8]) {
        let mut kv = self.kv.lock();
        let slots = &mut kv[block_slots(block, self.block_tokens)];
        assert_eq!(bytes.len(), slots.len() * SLOT_BYTES);
        for (slot, bytes) in slots.iter_mut().zip(bytes.as_chunks::<SLOT_BYTES>().0) {
            let &[a, b, c, d, ref hash @ ..] = bytes;
            let token = u32::from_le_bytes([a, b, c, d]);
            let hash = u64::from_le_bytes(*hash);
            *slot = (token != u32::MAX).then_some(Slot { token, hash });
        }
    }

    fn copy_state(&mut self, from: u32, to: u32) {
        self.states_kept[to as usize] = self.states_kept[from as usize].clone();
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        assert_eq!(out.len(), self.state_bytes());
        let WindowState { count, last } = &self.states_kept[slot as usize];
        let words = last.iter().copied().chain(std::iter::repeat(0));
        let words = std::iter::once(*count).chain(words);
        for (out, word) in out.chunks_exact_mut(4).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.state_bytes());
        let mut words = bytes
            .as_chunks()
            .0
            .iter()
            .map(|&word| u32::from_le_bytes(word));
        let count = words.next().expect("a state has a count");
        self.states_kept[slot as usize] = WindowState {
            count,
            last: words.take(count as usize).collect(),
        };
    }

    fn kv_identity(&self) -> [u8; 32] {
        let mut identity = *b"fake model, tokens in a block:  ";
        identity[31] = self.block_tokens as u8;
        identity[30] += self.window as u8;
        identity
    }
}

/// What is kept of a token, as keys and values depend on everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    token: u32,
    /// Of the sequence up to here.
    hash: u64,
}

/// The running state of one sequence: how many tokens it has seen, and the last of them, as many as the window holds.
#[derive(Debug, Clone, Default)]
struct WindowState {
    count: u32,
    last: VecDeque<u32>,
}

impl WindowState {
    fn push(&mut self, token: u32, window: usize) {
        if window > 0 {
            self.count += 1;
            self.last.push_back(token);
            self.last.drain(..self.last.len().saturating_sub(window));
        }
    }

    /// 0 of none at all.
    fn hash(&self) -> u64 {
        self.last
            .iter()
            .fold(u64::from(self.count), |hash, &token| {
                mix(hash ^ u64::from(token))
            })
    }
}

/// A slot's token and hash as bytes.
const SLOT_BYTES: usize = 12;

impl Slot {
    fn new(before: u64, token: u32) -> Self {
        let hash = mix(before ^ u64::from(token));
        Self { token, hash }
    }
}

/// The slots of KV memory.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Vec<Option<Slot>>>>);

impl Memory {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn block_slots(block: u32, block_tokens: u32) -> std::ops::Range<usize> {
    (block * block_tokens) as usize..((block + 1) * block_tokens) as usize
}

/// Keeps a fake model's KV in memory, fails and dawdles as its seed says, and takes virtual time.
///
/// It fills blocks only when a transfer is over, so whoever reads one too early reads nothing, or what was there before.
pub struct FakeStore {
    kv: Memory,
    block_tokens: u32,
    clock: Arc<VirtualClock>,
    unit_us: u64,
    block_us: u64,
    rng: Pcg64,
    fails_one_in: u32,
    late_one_in: u32,
    loads_stick: bool,
    state_bytes: usize,
    /// By salt and the tokens before it: the running state behind a block.
    states: BTreeMap<(u64, Vec<u32>), Vec<u8>>,
    /// By salt and the tokens from the beginning of a sequence to the end of a block: what the block holds.
    blocks: BTreeMap<(u64, Vec<u32>), Vec<Slot>>,
    pending: Option<Pending>,
}

struct Pending {
    polls_left: u32,
    /// Blocks to fill with their content, at the end.
    fill: Vec<(u32, Vec<Slot>)>,
    /// A running state to fill with its content, then.
    fill_state: Option<(u32, Vec<u8>)>,
    done: u32,
}

impl FakeStore {
    /// Lets one transfer in `one_in` end early, and with it every later block of that transfer.
    #[must_use]
    pub fn failing(mut self, seed: u64, one_in: u32) -> Self {
        self.rng = Pcg64::seed_from_u64(seed);
        self.fails_one_in = one_in;
        self
    }

    /// Lets one transfer in `one_in` end up to seven polls after its step.
    #[must_use]
    pub fn late(mut self, one_in: u32) -> Self {
        self.late_one_in = one_in;
        self
    }

    /// Lets every load stay pending until it is given up.
    #[must_use]
    pub fn stuck(mut self) -> Self {
        self.loads_stick = true;
        self
    }

    fn chance(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.rng.next_u32().is_multiple_of(one_in)
    }

    /// Begins a transfer of `asked` blocks that puts `fill` into memory; gives how many it will do.
    fn begin(&mut self, asked: usize, mut fill: Vec<(u32, Vec<Slot>)>, sticks: bool) -> u32 {
        assert!(self.pending.is_none(), "one transfer at a time");
        let asked = u32::try_from(asked).expect("block numbers are u32");
        let done = if self.chance(self.fails_one_in) {
            self.rng.next_u32() % asked
        } else {
            asked
        };
        fill.truncate(done as usize);
        let polls_left = if sticks {
            u32::MAX
        } else if self.chance(self.late_one_in) {
            self.rng.next_u32() % 7 + 1
        } else {
            0
        };
        if polls_left == 0 {
            let us = self.unit_us + self.block_us * u64::from(done);
            self.clock.advance(us);
        }
        self.pending = Some(Pending {
            polls_left,
            fill,
            fill_state: None,
            done,
        });
        done
    }
}

impl Store for FakeStore {
    fn lookup(&mut self, salt: u64, prompt: &[u32]) -> u32 {
        let block = self.block_tokens as usize;
        let key = |k: usize| (salt, prompt[..k * block].to_vec());
        let known = (1..=prompt.len() / block).take_while(|&k| self.blocks.contains_key(&key(k)));
        let resumable = known
            .filter(|&k| self.state_bytes == 0 || self.states.contains_key(&key(k)))
            .last();
        u32::try_from(resumable.unwrap_or(0) * block).expect("a prompt fits the context")
    }

    fn holds(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        let block = self.block_tokens as usize;
        let known = (1..=tokens.len() / block).take_while(|k| {
            self.blocks
                .contains_key(&(salt, tokens[..k * block].to_vec()))
        });
        u32::try_from(known.count() * block).expect("a sequence fits the context")
    }

    fn resumable(&mut self, salt: u64, tokens: &[u32]) -> u32 {
        self.lookup(salt, tokens)
    }

    fn load(&mut self, span: &Span<'_>, model: &mut dyn Model) -> Transfer {
        let content = |(k, &number): (usize, &u32)| {
            let end = (span.first_block as usize + k + 1) * self.block_tokens as usize;
            let key = (span.salt, span.tokens[..end].to_vec());
            (number, self.blocks[&key].clone())
        };
        let fill = span.blocks.iter().enumerate().map(content).collect();
        let done = self.begin(span.blocks.len(), fill, self.loads_stick);
        let pending = self.pending.as_mut().expect("just begun");
        if let Some(&Some(state)) = span.states.last()
            && done as usize == span.blocks.len()
        {
            let content = self.states[&(span.salt, span.tokens.to_vec())].clone();
            pending.fill_state = Some((state, content));
        }
        self.poll(model, usize::MAX)
    }

    fn save(&mut self, spans: &[Span<'_>], model: &dyn Model) -> Transfer {
        let block = self.block_tokens as usize;
        let mut copies = Vec::new();
        let mut states = Vec::new();
        for span in spans {
            assert_eq!(
                span.tokens.len(),
                (span.first_block as usize + span.blocks.len()) * block
            );
            for (k, &number) in span.blocks.iter().enumerate() {
                let end = (span.first_block as usize + k + 1) * block;
                let content: Vec<Slot> = self.kv.lock()[block_slots(number, self.block_tokens)]
                    .iter()
                    .map(|slot| slot.expect("a block to save has been computed"))
                    .collect();
                let mut before = hash(&span.tokens[..end - block]);
                let expected = span.tokens[end - block..end].iter().map(|&token| {
                    let slot = Slot::new(before, token);
                    before = slot.hash;
                    slot
                });
                assert!(
                    content.iter().copied().eq(expected),
                    "a block holds what names it"
                );
                let key = (span.salt, span.tokens[..end].to_vec());
                if let Some(&Some(state)) = span.states.get(k) {
                    let mut content = vec![0; self.state_bytes];
                    model.read_state(state, &mut content);
                    states.push((copies.len(), key.clone(), content));
                }
                copies.push((key, content));
            }
        }
        let kept = self.begin(copies.len(), Vec::new(), false) as usize;
        self.blocks.extend(copies.into_iter().take(kept));
        let kept = states.into_iter().filter(|(copy, ..)| *copy < kept);
        self.states
            .extend(kept.map(|(_, key, content)| (key, content)));
        self.advance(None)
    }

    fn poll(&mut self, model: &mut dyn Model, _most_bytes: usize) -> Transfer {
        self.advance(Some(model))
    }

    fn abandon(&mut self) {
        self.pending = None;
    }

    fn flush(&mut self, _most: Duration) {}

    fn stats(&self) -> StoreStats {
        StoreStats {
            blocks: self.blocks.len() as u64,
            ..StoreStats::default()
        }
    }
}

impl FakeStore {
    fn advance(&mut self, model: Option<&mut dyn Model>) -> Transfer {
        let pending = self.pending.as_mut().expect("a transfer is pending");
        if pending.polls_left > 0 {
            pending.polls_left -= 1;
            return Transfer::Pending;
        }
        let pending = self.pending.take().expect("it was there");
        if let (Some(model), Some((state, content))) = (model, &pending.fill_state) {
            model.write_state(*state, content);
        }
        let mut kv = self.kv.lock();
        for (number, content) in pending.fill {
            let slots = &mut kv[block_slots(number, self.block_tokens)];
            for (to, slot) in slots.iter_mut().zip(content) {
                *to = Some(slot);
            }
        }
        Transfer::done(pending.done)
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Moves on.
    pub fn advance(&self, us: u64) {
        self.0.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn slot(table: &[u32], position: u32, block_tokens: u32) -> usize {
    (table[(position / block_tokens) as usize] * block_tokens + position % block_tokens) as usize
}

fn letter(hash: u64) -> u32 {
    let letters = u64::from(LETTERS.end - LETTERS.start);
    // Less than 26.
    LETTERS.start + (hash % letters) as u32
}

fn hash(sequence: &[u32]) -> u64 {
    sequence
        .iter()
        .fold(0, |hash, &token| mix(hash ^ u64::from(token)))
}

/// The finaliser of SplitMix64, over a step of its counter.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
