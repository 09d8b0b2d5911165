//! The store on objects in memory that fail, tear, hang and vanish as a test wants: never a wrong byte, never over budget.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use andante_model::Limits;
use andante_sched::{PrefixMap, PrefixRun};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::fake::FakeModel;
use crate::spellings::{Spellings, Spelt};
use crate::store::index::charged;
use crate::store::key::Key;
use crate::store::objects::{Listed, Listing};
use crate::store::secret::Secret;

const BLOCK_TOKENS: u32 = 4;
const BLOCKS: u32 = 32;
/// What an object of these tests counts as.
const PAGE: u64 = 4096;

/// Objects in memory, and what goes wrong with them. Clones show the same ones.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Vec<u8>>,
    logs: BTreeMap<Key, Vec<Vec<u8>>>,
    /// What a write that was cut off has left.
    incoming: Option<Vec<u8>>,
    locked: bool,
    changes: u64,
    operations: u32,
    reads: u32,
    /// Logs read.
    log_reads: u32,
    /// Once so many operations are over, the process is dead.
    dies_after: Option<u32>,
    /// One operation in so many fails, by chance.
    fails_one_in: Option<u32>,
    rng: Option<Pcg64>,
    /// Every operation of a kind fails so.
    no_lock: Option<io::ErrorKind>,
    no_put: Option<io::ErrorKind>,
    no_get: Option<io::ErrorKind>,
    /// Reading waits for as long as this is true.
    hangs: bool,
    /// The most that was ever there, as it counts against the budget.
    most_bytes: u64,
}

impl Contents {
    /// Counts an operation; whether it shall fail.
    fn begin(&mut self, kind: Option<io::ErrorKind>) -> io::Result<()> {
        self.operations += 1;
        if self.dies_after.is_some_and(|after| self.operations > after) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let (Some(one_in), Some(rng)) = (self.fails_one_in, &mut self.rng)
            && rng.next_u32().is_multiple_of(one_in)
        {
            return Err(io::ErrorKind::Other.into());
        }
        kind.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn measure(&mut self) {
        let objects = self.objects.values().chain(&self.incoming);
        let bytes: u64 = objects.map(|object| charged(object.len() as u64)).sum();
        let logs: u64 = self
            .logs
            .keys()
            .map(|log| charged(self.log_bytes(log)))
            .sum();
        self.most_bytes = self.most_bytes.max(bytes + logs);
    }

    fn log_bytes(&self, log: &Key) -> u64 {
        self.logs[log]
            .iter()
            .map(|record| record.len() as u64)
            .sum()
    }
}

impl Shelf {
    fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Contents)) {
        change(&mut self.contents());
    }
}

/// A store's own sight of a shelf.
struct View {
    shelf: Shelf,
    seen: Mutex<Option<u64>>,
}

impl Objects for View {
    fn lock(&self) -> io::Result<bool> {
        loop {
            let mut contents = self.shelf.contents();
            if contents.locked {
                drop(contents);
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let no_lock = contents.no_lock;
            contents.begin(no_lock)?;
            let mut seen = self.seen.lock().expect("no panic");
            let changed = *seen != Some(contents.changes);
            if changed {
                contents.incoming = None;
            }
            contents.changes += 1;
            *seen = Some(contents.changes);
            contents.locked = true;
            return Ok(changed);
        }
    }

    fn unlock(&self) {
        // The system does it for the dead.
        self.shelf.contents().locked = false;
    }

    fn list(&self) -> io::Result<Listing> {
        let mut contents = self.shelf.contents();
        let no_get = contents.no_get;
        contents.begin(no_get)?;
        let listed = contents.objects.iter().filter_map(|(name, object)| {
            Some(Listed {
                name: ObjectName::parse(name)?,
                bytes: object.len() as u64,
                modified_s: 7,
            })
        });
        Ok(Listing {
            objects: listed.collect(),
            logs: contents
                .logs
                .keys()
                .map(|log| (*log, contents.log_bytes(log)))
                .collect(),
        })
    }

    fn get(&self, name: &ObjectName, into: &mut Vec<u8>) -> io::Result<()> {
        while self.shelf.contents().hangs {
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut contents = self.shelf.contents();
        let no_get = contents.no_get;
        contents.reads += 1;
        contents.begin(no_get)?;
        into.clear();
        match contents.objects.get(&name.to_string()) {
            Some(object) => into.extend(object),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.shelf.contents();
        assert!(contents.locked, "only who holds the lock writes");
        let no_put = contents.no_put;
        let lives = contents
            .dies_after
            .is_none_or(|after| contents.operations < after);
        let begun = contents.begin(no_put);
        if begun.is_err() && lives {
            return begun;
        }
        if begun.is_err() {
            // Killed while writing this one, or dead already.
            if contents.dies_after == Some(contents.operations - 1) {
                contents.incoming = Some(bytes[..bytes.len() / 2].to_vec());
                contents.measure();
            }
            return begun;
        }
        contents.objects.insert(name.to_string(), bytes.to_vec());
        contents.measure();
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> io::Result<()> {
        let mut contents = self.shelf.contents();
        assert!(contents.locked, "only who holds the lock deletes");
        let no_put = contents.no_put;
        contents.begin(no_put)?;
        contents.objects.remove(&name.to_string());
        Ok(())
    }

    fn read_log(&self, log: &Key) -> io::Result<Vec<Vec<u8>>> {
        let mut contents = self.shelf.contents();
        let no_get = contents.no_get;
        contents.log_reads += 1;
        contents.begin(no_get)?;
        Ok(contents.logs.get(log).cloned().unwrap_or_default())
    }

    fn append(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        self.write_log(log, |records| records.push(record.to_vec()))
    }

    fn replace_log(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        self.write_log(log, |records| *records = vec![record.to_vec()])
    }

    fn delete_log(&self, log: &Key) -> io::Result<()> {
        let mut contents = self.shelf.contents();
        assert!(contents.locked, "only who holds the lock deletes");
        let no_put = contents.no_put;
        contents.begin(no_put)?;
        contents.logs.remove(log);
        Ok(())
    }
}

impl View {
    fn write_log(&self, log: &Key, change: impl FnOnce(&mut Vec<Vec<u8>>)) -> io::Result<u64> {
        let mut contents = self.shelf.contents();
        assert!(contents.locked, "only who holds the lock writes");
        let no_put = contents.no_put;
        contents.begin(no_put)?;
        change(contents.logs.entry(*log).or_default());
        contents.measure();
        Ok(contents.log_bytes(log))
    }
}

/// A store and a model whose memory it fills.
struct Rig {
    shelf: Shelf,
    store: DiskStore,
    model: Box<dyn Model>,
}

fn open(shelf: &Shelf, budget_bytes: u64) -> io::Result<Rig> {
    open_with(shelf, budget_bytes, None)
}

fn open_with(shelf: &Shelf, budget_bytes: u64, secret: Option<Secret>) -> io::Result<Rig> {
    let mut model = FakeModel::new(300).block_tokens(BLOCK_TOKENS).boxed();
    model
        .reserve(Limits {
            blocks: BLOCKS,
            batch_tokens: 1,
            logit_rows: 1,
            state_rows: 0,
            running_states: 0,
        })
        .expect("memory");
    let config = StoreConfig {
        identity: model.kv_identity(),
        block_tokens: BLOCK_TOKENS,
        block_bytes: usize::try_from(model.kv_layout().block_bytes).expect("small"),
        state_bytes: usize::try_from(model.kv_layout().state_bytes).expect("small"),
        budget_bytes,
        secret,
    };
    let view = View {
        shelf: shelf.clone(),
        seen: Mutex::new(None),
    };
    Ok(Rig {
        shelf: shelf.clone(),
        store: DiskStore::open(Arc::new(view), config)?,
        model,
    })
}

/// The tokens of a sequence of so many blocks that begins with `first` and is like no other.
fn tokens(first: u32, blocks: u32) -> Vec<u32> {
    (0..blocks * BLOCK_TOKENS)
        .map(|index| first * 100 + index % 100)
        .collect()
}

/// What the memory holds of the last block of a sequence, as a model would compute it: from all tokens before.
fn content(tokens: &[u32], bytes: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    let mut content = vec![0; bytes];
    hasher.finalize_xof().fill(&mut content);
    // A token of this model's that means "nothing here".
    content.iter_mut().step_by(12).for_each(|byte| *byte = 0);
    content
}

impl Rig {
    fn new(budget_pages: u64) -> Self {
        open(&Shelf::default(), budget_pages * PAGE).expect("it opens")
    }

    /// Another process on the same objects.
    fn again(&self) -> Self {
        open(&self.shelf, self.store.stats().budget_bytes).expect("it opens")
    }

    fn bytes(&self) -> usize {
        self.store.shared.config.block_bytes
    }

    /// Computes the blocks of a sequence and saves those from `first` on.
    fn save_from(&mut self, tokens: &[u32], first: u32) {
        let end = u32::try_from(tokens.len()).expect("few") / BLOCK_TOKENS;
        let blocks: Vec<u32> = (first..end).map(|block| block % BLOCKS).collect();
        for block in first..end {
            let bytes = content(
                &tokens[..((block + 1) * BLOCK_TOKENS) as usize],
                self.bytes(),
            );
            self.model.write_block(block % BLOCKS, &bytes);
        }
        let span = Span {
            states: &[],
            salt: 0,
            tokens,
            first_block: first,
            blocks: &blocks,
        };
        let transfer = self.store.save(&[span], &*self.model);
        assert_eq!(self.wait(transfer), end - first);
        self.store.flush(Duration::from_secs(60));
    }

    fn save(&mut self, tokens: &[u32]) {
        self.save_from(tokens, 0);
    }

    fn wait(&mut self, mut transfer: Transfer) -> u32 {
        loop {
            if let Transfer::Done { blocks, .. } = transfer {
                return blocks;
            }
            std::thread::sleep(Duration::from_micros(50));
            transfer = self.store.poll(&mut *self.model, COPY_BYTES);
        }
    }

    /// Looks a sequence up and loads what is said to be there; gives how many blocks came, all of them right.
    fn load(&mut self, tokens: &[u32]) -> u32 {
        let found = self.store.lookup(0, tokens) / BLOCK_TOKENS;
        if found == 0 {
            return 0;
        }
        let blocks: Vec<u32> = (0..found).rev().collect();
        let span = Span {
            states: &[],
            salt: 0,
            tokens: &tokens[..(found * BLOCK_TOKENS) as usize],
            first_block: 0,
            blocks: &blocks,
        };
        let transfer = self.store.load(&span, &mut *self.model);
        let came = self.wait(transfer);
        let mut read = vec![0; self.bytes()];
        for (end, &block) in (1..=came as usize).zip(&blocks) {
            self.model.read_block(block, &mut read);
            let expected = content(&tokens[..end * BLOCK_TOKENS as usize], self.bytes());
            assert_eq!(read, expected, "block {end} of {came}");
        }
        came
    }

    /// Waits until the writing thread has done all that was asked before.
    fn settle(&mut self) {
        let (sender, answer) = std::sync::mpsc::channel();
        self.store
            .writes
            .send(WriteJob::Answer(sender))
            .expect("it lives");
        answer.recv().expect("it answers");
    }
}

#[test]
fn what_was_saved_is_loaded_now_and_after_a_restart() {
    let mut rig = Rig::new(100);
    let sequence = tokens(1, 5);
    rig.save(&sequence[..19]);
    assert_eq!(rig.load(&sequence), 4, "whole blocks only");
    rig.save_from(&sequence, 4);
    let mut again = rig.again();
    assert_eq!(again.shelf.contents().reads, 4, "a start reads nothing");
    assert_eq!(again.load(&sequence), 5);
    assert_eq!(again.load(&tokens(2, 5)), 0);
    let stats = again.store.stats();
    assert_eq!((stats.loaded_blocks, stats.absent, stats.blocks), (5, 5, 5));
    assert_eq!(stats.used_bytes, 5 * PAGE);
}

#[test]
fn a_fork_costs_its_own_blocks_only() {
    let mut rig = Rig::new(100);
    let first = tokens(1, 6);
    let mut second = first.clone();
    second[17] = 9;
    rig.save(&first);
    rig.save(&second);
    rig.save(&first);
    let stats = rig.store.stats();
    assert_eq!((stats.saved_blocks, stats.deduplicated), (8, 4 + 6));
    assert_eq!((rig.load(&first), rig.load(&second)), (6, 6));
    assert_eq!(rig.store.holds(0, &second), 24);
}

#[test]
fn holdings_count_the_blocks_of_each_run_that_are_there() {
    let mut rig = Rig::new(100);
    let sequence = tokens(1, 6);
    rig.save(&sequence[..20]);
    let run = |parent, tokens: &[u32], salt| PrefixRun {
        parent,
        blocks: u32::try_from(tokens.len().div_ceil(BLOCK_TOKENS as usize)).expect("few"),
        tokens: u32::try_from(tokens.len()).expect("few"),
        holders: 0,
        salt,
    };
    // Four blocks that are there; after them one that is and one that is not full, or two of something else; and what is no
    // business of the others.
    let (same, rest, other) = (&sequence[..16], &sequence[16..23], &tokens(2, 2)[..]);
    let map = PrefixMap {
        runs: vec![
            run(None, same, 0),
            run(None, same, 7),
            run(Some(0), rest, 0),
            run(Some(0), other, 0),
        ],
        tokens: [same, same, rest, other].concat(),
        left_out: 0,
    };
    let holdings = rig.store.holdings().expect("a disk tells");
    assert_eq!(holdings.of(&map), [4, 0, 1, 0]);
}

#[test]
fn the_budget_holds_and_a_prefix_is_never_given_up_for_its_own_end() {
    let mut rig = Rig::new(5);
    rig.save(&tokens(1, 3));
    rig.save(&tokens(2, 9));
    let stats = rig.store.stats();
    assert_eq!((stats.blocks, stats.evicted), (5, 3));
    assert_eq!(
        rig.load(&tokens(2, 9)),
        5,
        "as much of it as there is room for"
    );
    rig.save(&tokens(3, 2));
    assert_eq!(rig.load(&tokens(3, 2)), 2);
    assert_eq!(rig.load(&tokens(2, 9)), 3);
    assert!(rig.shelf.contents().most_bytes <= 5 * PAGE);
    // A start with a smaller budget comes down to it.
    let smaller = open(&rig.shelf, 2 * PAGE).expect("it opens");
    assert_eq!(smaller.store.stats().blocks, 2);
    assert_eq!(rig.shelf.contents().objects.len(), 2);
}

#[test]
fn a_block_without_its_prefix_is_not_kept() {
    let mut rig = Rig::new(100);
    rig.save_from(&tokens(1, 3), 2);
    let stats = rig.store.stats();
    assert_eq!((stats.blocks, stats.unsaved), (0, 1));
    assert_eq!(rig.store.holds(0, &tokens(1, 3)), 0);
}

#[test]
fn two_stores_share_a_budget_and_each_others_blocks() {
    let mut one = Rig::new(8);
    let mut other = one.again();
    for round in 0..6 {
        one.save(&tokens(10 + round, 3));
        other.save(&tokens(20 + round, 3));
        // What the other one wrote is seen when this one has written.
        one.save(&tokens(30, 1));
        assert_eq!(one.load(&tokens(20 + round, 3)), 3, "round {round}");
        // What the other one gave up is a miss, not a fault.
        other.load(&tokens(10 + round, 3));
        one.load(&tokens(10, 3));
    }
    let most = one.shelf.contents().most_bytes;
    assert!(most > 6 * PAGE && most <= 8 * PAGE, "{most}");
}

#[test]
fn two_stores_at_once_keep_the_budget_and_never_load_wrong_bytes() {
    let rigs = {
        let one = Rig::new(12);
        let other = one.again();
        [one, other]
    };
    let shelf = rigs[0].shelf.clone();
    std::thread::scope(|scope| {
        for (seed, mut rig) in rigs.into_iter().enumerate() {
            scope.spawn(move || {
                let mut rng = Pcg64::seed_from_u64(seed as u64);
                for _ in 0..150 {
                    let first = rng.next_u32() % 8;
                    let blocks = 1 + rng.next_u32() % 5;
                    if rng.next_u32().is_multiple_of(2) {
                        rig.save(&tokens(first, blocks));
                    } else {
                        rig.load(&tokens(first, blocks));
                    }
                }
            });
        }
    });
    assert!(shelf.contents().most_bytes <= 12 * PAGE);
    let again = open(&shelf, 12 * PAGE).expect("it opens");
    assert_eq!(
        again.store.stats().used_bytes,
        shelf.contents().objects.len() as u64 * PAGE
    );
}

/// What a process does before it is killed.
fn work(rig: &mut Rig) {
    for first in [1, 2, 1, 3, 4] {
        rig.save(&tokens(first, 3));
        rig.load(&tokens(first, 4));
    }
    let mut fork = tokens(3, 5);
    fork[9] = 7;
    rig.save(&fork);
}

#[test]
fn a_process_killed_after_any_operation_leaves_nothing_wrong_behind() {
    let mut deaths = 0;
    for dies_after in 0.. {
        let shelf = Shelf::default();
        shelf.change(|contents| contents.dies_after = Some(dies_after));
        if let Ok(mut rig) = open(&shelf, 7 * PAGE) {
            work(&mut rig);
            rig.settle();
        }
        let died = shelf.contents().operations > dies_after;
        let damaged = shelf.contents().incoming.is_some();
        shelf.change(|contents| {
            contents.dies_after = None;
            contents.locked = false;
        });
        let mut after = open(&shelf, 7 * PAGE).expect("the next start loads");
        assert!(shelf.contents().incoming.is_none(), "{dies_after}");
        for first in 1..5 {
            after.load(&tokens(first, 3));
        }
        let stats = after.store.stats();
        assert_eq!((stats.damaged, stats.foreign, stats.unreadable), (0, 0, 0));
        work(&mut after);
        after.save(&tokens(9, 3));
        assert_eq!(after.load(&tokens(9, 3)), 3);
        assert!(shelf.contents().most_bytes <= 7 * PAGE, "{dies_after}");
        deaths += u32::from(damaged);
        if !died {
            break;
        }
    }
    assert!(deaths > 5, "{deaths} in the middle of a write");
}

#[test]
fn operations_that_fail_by_chance_cost_blocks_and_nothing_else() {
    for seed in 0..30 {
        let mut rig = Rig::new(6);
        rig.shelf.change(|contents| {
            contents.fails_one_in = Some(4);
            contents.rng = Some(Pcg64::seed_from_u64(seed));
        });
        for first in [1, 2, 1, 3, 2] {
            rig.save(&tokens(first, 3));
            rig.load(&tokens(first, 3));
            // It would not write for half a minute.
            rig.store.shared.state().resume();
        }
        rig.settle();
        assert!(rig.shelf.contents().most_bytes <= 6 * PAGE);
        rig.shelf.change(|contents| contents.fails_one_in = None);
        let mut after = rig.again();
        for first in 1..4 {
            after.load(&tokens(first, 3));
        }
    }
}

#[test]
fn a_damaged_object_is_a_miss_and_goes_with_what_continues_it() {
    let mut rig = Rig::new(100);
    let sequence = tokens(1, 4);
    let names: Vec<String> = rig
        .store
        .names(0, &sequence)
        .map(|(name, _)| name.to_string())
        .collect();
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 4] = [
        |object| object[200] ^= 1,
        |object| object.truncate(100),
        Vec::clear,
        |object| *object.last_mut().expect("not empty") ^= 0x80,
    ];
    for damage in damages {
        rig.save(&sequence);
        assert_eq!(rig.load(&sequence), 4);
        let before = rig.store.stats().damaged;
        damage(
            rig.shelf
                .contents()
                .objects
                .get_mut(&names[1])
                .expect("it is there"),
        );
        assert_eq!(rig.load(&sequence), 1, "what stands before it");
        rig.settle();
        assert_eq!(rig.store.stats().damaged, before + 1);
        assert_eq!(rig.shelf.contents().objects.len(), 1, "out of the way");
        assert_eq!(rig.store.stats().blocks, 1);
        assert_eq!(rig.load(&sequence), 1);
    }
}

#[test]
fn an_object_under_anothers_name_is_a_miss() {
    let mut rig = Rig::new(100);
    let (first, second) = (tokens(1, 1), tokens(2, 1));
    rig.save(&first);
    rig.save(&second);
    let name = |rig: &Rig, tokens: &[u32]| {
        let named = rig.store.names(0, tokens).next();
        named.expect("a block").0.to_string()
    };
    let (one, other) = (name(&rig, &first), name(&rig, &second));
    rig.shelf.change(|contents| {
        let object = contents.objects[&one].clone();
        contents.objects.insert(other, object);
    });
    assert_eq!(rig.load(&second), 0);
    assert_eq!(rig.load(&first), 1);
    assert_eq!(rig.store.stats().foreign, 1);
}

#[test]
fn objects_that_others_removed_are_misses() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 3));
    rig.shelf.contents().objects.clear();
    assert_eq!(rig.load(&tokens(1, 3)), 0);
    // Both readers have one to miss, and the second may be late.
    while rig.store.stats().unreadable < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.settle();
    assert_eq!(rig.store.stats().blocks, 0);
    rig.save(&tokens(1, 3));
    assert_eq!(rig.load(&tokens(1, 3)), 3);
}

#[test]
fn a_full_disk_costs_what_cannot_be_saved() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 2));
    rig.shelf
        .change(|contents| contents.no_put = Some(io::ErrorKind::StorageFull));
    rig.save(&tokens(2, 2));
    let tried = rig.shelf.contents().operations;
    rig.save(&tokens(3, 2));
    assert_eq!(rig.shelf.contents().operations, tried, "not every time");
    assert_eq!(rig.store.stats().unsaved, 4);
    assert_eq!(rig.load(&tokens(2, 2)), 0);
    assert_eq!(rig.load(&tokens(1, 2)), 2, "what is there is there");
    rig.shelf.change(|contents| contents.no_put = None);
    rig.store.shared.state().resume();
    rig.save(&tokens(2, 2));
    assert_eq!(rig.load(&tokens(2, 2)), 2);
}

#[test]
fn what_may_not_be_written_is_read() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 2));
    for kind in [
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::PermissionDenied,
    ] {
        rig.shelf.change(|contents| contents.no_lock = Some(kind));
        let mut reader = rig.again();
        assert_eq!(reader.load(&tokens(1, 2)), 2);
        reader.save(&tokens(2, 2));
        assert_eq!(reader.load(&tokens(2, 2)), 0);
        assert_eq!(reader.store.stats().unsaved, 2);
    }
}

#[test]
fn a_folder_that_vanishes_is_empty_and_comes_back() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 2));
    let gone = Some(io::ErrorKind::NotFound);
    rig.shelf.change(|contents| {
        (contents.no_lock, contents.no_put, contents.no_get) = (gone, gone, gone);
    });
    assert_eq!(rig.load(&tokens(1, 2)), 0);
    // Both threads have looked.
    while rig.store.stats().unreadable < 2 {
        std::thread::sleep(Duration::from_micros(100));
    }
    std::thread::sleep(Duration::from_millis(2));
    rig.settle();
    assert_eq!(
        rig.store.lookup(0, &tokens(1, 2)),
        0,
        "it is not asked again"
    );
    rig.save(&tokens(2, 2));
    assert!(
        open(&rig.shelf, PAGE).is_err(),
        "a start without it is refused"
    );
    rig.shelf.change(|contents| {
        (contents.no_lock, contents.no_put, contents.no_get) = (None, None, None);
        contents.changes += 1;
    });
    rig.store.shared.state().resume();
    rig.save(&tokens(3, 2));
    assert_eq!(rig.load(&tokens(1, 2)), 2);
}

#[test]
fn errors_of_reading_are_misses_and_remove_nothing() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 2));
    rig.shelf
        .change(|contents| contents.no_get = Some(io::ErrorKind::TimedOut));
    assert_eq!(rig.load(&tokens(1, 2)), 0);
    rig.shelf.change(|contents| contents.no_get = None);
    rig.settle();
    assert_eq!(rig.load(&tokens(1, 2)), 2);
    assert!(rig.store.stats().unreadable > 0);
}

#[test]
fn a_load_that_hangs_is_given_up_and_nobody_waits_for_it_again() {
    let mut rig = Rig::new(100);
    let sequence = tokens(1, 3);
    rig.save(&sequence);
    rig.shelf.change(|contents| contents.hangs = true);
    let span = Span {
        states: &[],
        salt: 0,
        tokens: &sequence,
        first_block: 0,
        blocks: &[0, 1, 2],
    };
    for block in 0..3 {
        rig.model.write_block(block, &[0; 48]);
    }
    assert_eq!(rig.store.load(&span, &mut *rig.model), Transfer::Pending);
    rig.store.abandon();
    assert_eq!(rig.store.lookup(0, &sequence), 0);
    assert_eq!(rig.store.load(&span, &mut *rig.model), Transfer::done(0));
    // Saving goes on: it is another thread's.
    rig.save(&tokens(2, 1));
    rig.shelf.change(|contents| contents.hangs = false);
    while rig.store.hangs() {
        std::thread::sleep(Duration::from_micros(50));
    }
    let mut read = [1; 48];
    rig.model.read_block(1, &mut read);
    assert_eq!(read, [0; 48], "blocks of a load given up are not touched");
    assert_eq!(rig.load(&sequence), 3);
}

#[test]
fn saving_is_held_up_by_a_slow_disk_unless_a_load_waits() {
    let mut rig = Rig::new(100);
    rig.save(&tokens(1, 1));
    let view = View {
        shelf: rig.shelf.clone(),
        seen: Mutex::new(None),
    };
    let held = Held::take(&view).expect("locked");
    // As if much were copied and not yet written.
    let staged = STAGED_BYTES / rig.bytes() + 1;
    let bytes = staged * rig.bytes();
    rig.store.shared.state().staged_bytes += bytes;
    let sequence = tokens(2, 1);
    let span = Span {
        states: &[],
        salt: 0,
        tokens: &sequence,
        first_block: 0,
        blocks: &[0],
    };
    assert_eq!(rig.store.save(&[span], &*rig.model), Transfer::Pending);
    assert_eq!(
        rig.store.poll(&mut *rig.model, COPY_BYTES),
        Transfer::Pending
    );
    assert!(rig.store.lookup(0, &tokens(1, 1)) > 0);
    assert_eq!(
        rig.store.poll(&mut *rig.model, COPY_BYTES),
        Transfer::done(1)
    );
    rig.store.shared.state().staged_bytes -= bytes;
    drop(held);
    rig.settle();
    rig.store.flush(Duration::from_secs(60));
    assert_eq!(rig.store.stats().blocks, 2);
}

#[test]
fn a_flush_ends_in_time() {
    let mut rig = Rig::new(100);
    let view = View {
        shelf: rig.shelf.clone(),
        seen: Mutex::new(None),
    };
    let held = Held::take(&view).expect("locked");
    let sequence = tokens(2, 1);
    let span = Span {
        states: &[],
        salt: 0,
        tokens: &sequence,
        first_block: 0,
        blocks: &[0],
    };
    rig.store.save(&[span], &*rig.model);
    rig.store.flush(Duration::from_millis(1));
    assert_eq!(rig.store.stats().blocks, 0);
    drop(held);
    rig.store.flush(Duration::from_secs(60));
    assert_eq!(rig.store.stats().blocks, 1);
}

/// Says something to a store that it has not heard, `words` of 32 tokens.
fn say(rig: &mut Rig, spellings: &Spellings, first: u32, words: u32) {
    spellings.note(Spelt {
        salt: 0,
        prompt: (0..words * 32).map(|token| first * 1000 + token).collect(),
        answer: vec![first; 3],
    });
    rig.store.said();
    rig.store.flush(Duration::from_secs(60));
}

fn heard(rig: &mut Rig) -> Arc<Spellings> {
    let remembered = Remembered::default();
    rig.store.share(&remembered);
    remembered.spellings
}

#[test]
fn what_was_said_is_known_after_a_restart_and_to_others() {
    let mut rig = Rig::new(1000);
    let spellings = heard(&mut rig);
    say(&mut rig, &spellings, 1, 3);
    let written = rig.store.stats().used_bytes;
    assert_eq!(written, PAGE, "it counts against the budget");
    let mut again = rig.again();
    let known = heard(&mut again);
    assert_eq!(known.latest(100), spellings.latest(100));
    assert_eq!(known.latest(100).len(), 4);
    // Two servers in turn: nobody takes away what the other has written.
    for round in 0..10 {
        say(&mut rig, &spellings, 10 + round, 2);
        say(&mut again, &known, 30 + round, 2);
    }
    let third = heard(&mut rig.again());
    assert_eq!(third.latest(1000).len(), 4 + 20 * 3);
    // The first has heard what the other said before its own last word.
    assert_eq!(spellings.latest(1000).len(), 4 + 19 * 3);
}

#[test]
fn a_log_stays_within_its_share_and_keeps_what_was_said_last() {
    let mut rig = Rig::new(160);
    let spellings = heard(&mut rig);
    let most = 10 * PAGE;
    for number in 0..400 {
        say(&mut rig, &spellings, number, 2);
        let contents = rig.shelf.contents();
        let (log, records) = contents.logs.iter().next().expect("written");
        assert!(contents.log_bytes(log) <= most, "{number}");
        assert!(records.len() <= 256);
    }
    assert!(rig.shelf.contents().most_bytes <= 160 * PAGE);
    let known = heard(&mut rig.again()).latest(1000);
    assert!(known.len() >= 60, "{}", known.len());
    let last = spellings.latest(known.len());
    assert_eq!(known, last);
}

#[test]
fn a_conversation_beyond_the_budget_keeps_its_spelling() {
    let mut rig = Rig::new(20);
    let spellings = heard(&mut rig);
    for first in 1..3 {
        say(&mut rig, &spellings, first, 1);
        // Its only end is what the next block continues: there is no other to give up.
        rig.save(&tokens(first, 30));
        let known = heard(&mut rig.again()).latest(100);
        assert_eq!(known, spellings.latest(100));
    }
    assert_eq!(rig.store.stats().blocks, 19);
}

#[test]
fn a_log_that_others_took_away_is_written_anew() {
    let mut rig = Rig::new(100);
    let spellings = heard(&mut rig);
    say(&mut rig, &spellings, 1, 1);
    rig.shelf.change(|contents| {
        contents.logs.clear();
        contents.changes += 1;
    });
    say(&mut rig, &spellings, 2, 1);
    let known = heard(&mut rig.again()).latest(100);
    assert_eq!(known, spellings.latest(100));
}

#[test]
fn a_log_is_read_again_only_after_others_have_written_it() {
    let mut rig = Rig::new(100);
    let spellings = heard(&mut rig);
    say(&mut rig, &spellings, 1, 1);
    let mut other = rig.again();
    let known = heard(&mut other);
    let log_reads = |rig: &Rig| rig.shelf.contents().log_reads;
    let before = log_reads(&rig);
    other.save(&tokens(1, 2));
    say(&mut rig, &spellings, 2, 1);
    assert_eq!(log_reads(&rig), before, "it is as it was");
    say(&mut other, &known, 3, 1);
    assert_eq!(log_reads(&rig), before + 1);
    say(&mut rig, &spellings, 4, 1);
    assert_eq!(log_reads(&rig), before + 2);
    assert_eq!(spellings.latest(100).len(), 4 * 2);
}

#[test]
fn a_log_beyond_its_share_of_a_smaller_budget_makes_room() {
    let mut rig = Rig::new(1600);
    let spellings = heard(&mut rig);
    say(&mut rig, &spellings, 1, 300);
    let mut smaller = open(&rig.shelf, 8 * PAGE).expect("it opens");
    smaller.save(&tokens(1, 3));
    assert_eq!(smaller.load(&tokens(1, 3)), 3);
    assert!(smaller.store.stats().used_bytes <= 8 * PAGE);
}

#[test]
fn what_could_not_be_logged_is_logged_later() {
    let mut rig = Rig::new(1000);
    let spellings = heard(&mut rig);
    say(&mut rig, &spellings, 1, 1);
    rig.shelf
        .change(|contents| contents.no_put = Some(io::ErrorKind::StorageFull));
    say(&mut rig, &spellings, 2, 1);
    rig.shelf.change(|contents| contents.no_put = None);
    say(&mut rig, &spellings, 3, 1);
    assert_eq!(heard(&mut rig.again()).latest(100).len(), 2, "it rests");
    rig.store.shared.state().resume();
    say(&mut rig, &spellings, 4, 1);
    assert_eq!(heard(&mut rig.again()).latest(100).len(), 8);
    // Damaged records are left out.
    rig.shelf.change(|contents| {
        let log = contents.logs.values_mut().next().expect("one");
        log.push(vec![9; 40]);
    });
    let mut again = rig.again();
    assert_eq!(heard(&mut again).latest(100).len(), 8);
    assert_eq!(again.store.stats().damaged, 1);
}

#[test]
fn encrypted_blocks_are_of_use_to_those_with_the_key_only() {
    let (one, other) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
    let shelf = Shelf::default();
    let with = |secret: Option<&Secret>| open_with(&shelf, 100 * PAGE, secret.cloned());
    let sequence = tokens(1, 3);
    let mut rig = with(Some(&one)).expect("it opens");
    let spellings = heard(&mut rig);
    rig.save(&sequence);
    say(&mut rig, &spellings, 1, 1);
    assert_eq!(with(Some(&one)).expect("it opens").load(&sequence), 3);
    for secret in [None, Some(&other)] {
        let mut stranger = with(secret).expect("it opens");
        assert_eq!(stranger.load(&sequence), 0);
        assert!(heard(&mut stranger).latest(9).is_empty());
        // It has its own beside them.
        stranger.save(&sequence);
        assert_eq!(stranger.load(&sequence), 3);
        let stats = stranger.store.stats();
        assert_eq!((stats.absent, stats.damaged, stats.foreign), (3, 0, 0));
    }
    assert_eq!(
        shelf.contents().objects.len(),
        9,
        "nobody removed another's"
    );
    assert_eq!(with(Some(&one)).expect("it opens").load(&sequence), 3);
    // Neither names nor bytes show the tokens, the second of which is 101.
    let plain = Key::root(&rig.store.shared.config.identity).child(&sequence[..4]);
    let contents = shelf.contents();
    let sealed: Vec<_> = contents
        .objects
        .iter()
        .filter(|(_, object)| object.starts_with(b"ANDANTEX"))
        .collect();
    assert_eq!(sealed.len(), 6);
    let token: Vec<u8> = sequence[..2].iter().flat_map(|t| t.to_le_bytes()).collect();
    for (name, object) in sealed {
        assert!(!name.contains(&plain.to_string()), "{name}");
        assert!(!object.windows(8).any(|bytes| bytes == token));
    }
}

#[test]
fn an_object_encrypted_with_another_key_is_a_miss_that_stays() {
    let (one, other) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
    let mut rig = Rig::new(100);
    let sequence = tokens(1, 2);
    rig.save(&sequence);
    let names: Vec<String> = rig.shelf.contents().objects.keys().cloned().collect();
    // As if somebody had put it under this name.
    rig.shelf.change(|contents| {
        let object = contents.objects.get_mut(&names[0]).expect("there");
        *object = other.seal(object);
        let object = contents.objects.get_mut(&names[1]).expect("there");
        *object = one.seal(object);
    });
    assert_eq!(rig.load(&sequence), 0);
    rig.settle();
    let stats = rig.store.stats();
    assert_eq!((stats.damaged, stats.blocks), (0, 2));
    assert!(stats.foreign >= 1);
}
