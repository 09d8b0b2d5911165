//! The story this project began with, on real threads: while an answer is running, a long prompt must not take the model
//! twice in a row. After a prefill turn the next one starts only when a decode batch has completed, when the last generation
//! has left, or when the engine is told to end; and the first token after a prefill does not wait for another prefill.
//!
//! (antirez/ds4 issue 600: the thread that prefilled released the model and took it again before the generating threads had
//! posted their next token.) Every forward pass stops at a gate until the test lets it go, so nothing here depends on time.

use std::collections::VecDeque;
use std::sync::Condvar;

use super::*;

/// One forward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    decode_rows: usize,
    /// First bytes of the prompts it works on.
    prefills: BTreeSet<u8>,
}

impl Turn {
    /// Prompts are capital letters, answers small ones.
    fn of(batch: &Batch) -> Self {
        let mut turn = Self {
            decode_rows: 0,
            prefills: BTreeSet::new(),
        };
        for sequence in &batch.sequences {
            match batch.tokens[sequence.rows.start as usize] as u8 {
                b'a'..=b'z' => turn.decode_rows += 1,
                prompt => _ = turn.prefills.insert(prompt),
            }
        }
        turn
    }
}

/// Where every forward pass waits for the test.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: VecDeque<Turn>,
    open: u32,
    /// Nobody waits any more.
    removed: bool,
}

impl Gate {
    /// The model's side.
    fn pass(&self, turn: Turn) {
        let mut state = self.state.lock().expect("no panic");
        state.arrived.push_back(turn);
        self.changed.notify_all();
        while state.open == 0 && !state.removed {
            state = self.changed.wait(state).expect("no panic");
        }
        state.open = state.open.saturating_sub(1);
    }

    /// Waits until the next pass stands at the gate.
    fn next(&self) -> Turn {
        let mut state = self.state.lock().expect("no panic");
        loop {
            if let Some(turn) = state.arrived.pop_front() {
                return turn;
            }
            state = self.changed.wait(state).expect("no panic");
        }
    }

    fn open(&self) {
        self.state.lock().expect("no panic").open += 1;
        self.changed.notify_all();
    }

    fn remove(&self) {
        self.state.lock().expect("no panic").removed = true;
        self.changed.notify_all();
    }
}

/// The turns after which another prefill turn started although a generation was owed a decode turn. `decodes` is how many
/// decode turns that generation takes before it leaves.
fn stolen_turns(turns: &[Turn], decodes: usize) -> Vec<usize> {
    let mut left = decodes;
    let mut stolen = Vec::new();
    for (index, pair) in turns.windows(2).enumerate() {
        left -= usize::from(pair[0].decode_rows > 0).min(left);
        if left > 0 && pair.iter().all(|turn| turn.decode_rows == 0) {
            stolen.push(index);
        }
    }
    stolen
}

/// How an engine of the test runs.
type Run = fn(Engine) -> Result<(), EngineError>;

/// The engine with the hand-off taken out, which is the defect of issue 600: after a prefill turn the scheduler does not
/// know of the decoders, because they have not posted their next token when the prompt asks again.
fn run_without_hand_off(mut engine: Engine) -> Result<(), EngineError> {
    let mut prefilled_before = false;
    loop {
        let generating: Vec<SeqId> = engine.generations.keys().copied().collect();
        // One in three is lost: enough for answers to go on, as they did there.
        let late = prefilled_before && !engine.scheduler.stats().steps.is_multiple_of(3);
        if late {
            engine.apply();
            for &id in &generating {
                engine.scheduler.busy(id);
            }
        }
        let progress = engine.step()?;
        for &id in &generating {
            engine.scheduler.ready(id);
        }
        match progress {
            Progress::Stepped => prefilled_before = last_step(&engine).decode.is_empty(),
            Progress::Ended => return Ok(()),
            Progress::Waiting { .. } => {
                prefilled_before = false;
                if engine.inbox.wait(None) == Woken::Abandoned {
                    return Ok(());
                }
            }
        }
    }
}

struct Scene {
    gate: Arc<Gate>,
    handle: EngineHandle,
    thread: JoinHandle<Result<(), EngineError>>,
}

impl Scene {
    fn new(run: Run) -> Self {
        let gate = Arc::new(Gate::default());
        let hook = Arc::clone(&gate);
        let model = FakeModel::new(VOCAB).on_forward(move |batch| hook.pass(Turn::of(batch)));
        // Strict turns: the decoders claim no more than the turn that each prefill owes them.
        let config = EngineConfig {
            mode: Mode::HandOff,
            prefill_chunk: 8,
            decode_share_permille: Some(0),
            ..small()
        };
        let (engine, handle) = Engine::new(
            model.boxed(),
            text_stack(),
            &config,
            Arc::new(SystemClock::new()),
        )
        .expect("valid");
        Self {
            gate,
            handle,
            thread: std::thread::spawn(move || run(engine)),
        }
    }

    fn submit(&self, prompt: &str, tokens: u32) -> EventStream {
        let request = self
            .handle
            .prepare_text(PromptInput::Text(prompt.into()), greedy(tokens))
            .expect("valid");
        self.handle.submit(request).expect("room")
    }

    /// Lets the pass at the gate go and waits for the one after it.
    fn turn(&self) -> Turn {
        self.gate.open();
        self.gate.next()
    }

    /// Ends the scene; the remaining passes go through.
    fn end(self) {
        self.gate.remove();
        drop(self.handle);
        self.thread
            .join()
            .expect("no panic")
            .expect("the model works");
    }
}

/// Starts an answer of `tokens` tokens, then a long prompt; gives the turns from the long prompt's first one until the
/// answer has left and the prompt has had another two.
fn contend(scene: &Scene, tokens: u32) -> Vec<Turn> {
    let mut answer = scene.submit("A", tokens);
    scene.gate.next();
    let prompt = scene.submit(&"P".repeat(200), 1);
    // The prompt stands in the mailbox before the first decode turn starts.
    let mut turns = vec![scene.turn()];
    while turns.iter().filter(|turn| turn.decode_rows > 0).count() < tokens as usize - 1 {
        turns.push(scene.turn());
    }
    let read: Vec<Event> = {
        turns.push(scene.turn());
        std::iter::from_fn(|| answer.recv_blocking()).collect()
    };
    assert_eq!(
        Answer::from_events(&read).text,
        letters("A", tokens as usize)
    );
    turns.push(scene.turn());
    drop(prompt);
    turns
}

#[test]
fn a_prompt_takes_no_second_turn_before_a_decode_batch() {
    let scene = Scene::new(Engine::run);
    let turns = contend(&scene, 8);
    assert_eq!(stolen_turns(&turns, 7), [0_usize; 0], "{turns:?}");
    // And the prompt does get its turns: one after each decode turn, and all once the generation has left.
    let prefills = turns
        .iter()
        .filter(|turn| turn.prefills.contains(&b'P'))
        .count();
    assert!(prefills >= 7, "{turns:?}");
    assert!(
        turns[turns.len() - 2..]
            .iter()
            .all(|turn| turn.decode_rows == 0),
        "{turns:?}"
    );
    scene.end();
}

#[test]
fn without_the_hand_off_the_check_finds_stolen_turns() {
    let scene = Scene::new(run_without_hand_off);
    let turns = contend(&scene, 8);
    assert!(!stolen_turns(&turns, 7).is_empty(), "{turns:?}");
    scene.end();
}

#[test]
fn the_turn_is_owed_no_longer_when_the_last_generation_leaves() {
    let scene = Scene::new(Engine::run);
    let answer = scene.submit("A", 100);
    scene.gate.next();
    let prompt = scene.submit(&"P".repeat(200), 1);
    while scene.turn().decode_rows > 0 {}
    // A prefill turn stands at the gate and the next one is owed to the answer, whose client now leaves.
    drop(answer);
    for _ in 0..3 {
        assert_eq!(
            scene.turn(),
            Turn {
                decode_rows: 0,
                prefills: BTreeSet::from([b'P'])
            }
        );
    }
    drop(prompt);
    scene.end();
}

#[test]
fn the_turn_is_owed_no_longer_when_the_engine_ends() {
    let scene = Scene::new(Engine::run);
    let mut answer = scene.submit("A", 100);
    scene.gate.next();
    let mut prompt = scene.submit(&"P".repeat(200), 1);
    while scene.turn().decode_rows > 0 {}
    scene.handle.shutdown(Shutdown::Now);
    scene.gate.open();
    // No further turn is asked for: the thread ends although the gate is shut.
    scene
        .thread
        .join()
        .expect("no panic")
        .expect("the model works");
    for stream in [&mut answer, &mut prompt] {
        let last = std::iter::from_fn(|| stream.recv_blocking()).last();
        assert_eq!(last, Some(Event::Failed(Failure::ShuttingDown)));
    }
}

#[test]
fn the_first_token_after_a_prefill_does_not_wait_for_another_prefill() {
    let scene = Scene::new(Engine::run);
    let mut first = scene.submit("BBBBBBBBBB", 10);
    let at_gate = scene.gate.next();
    assert_eq!(at_gate.prefills, BTreeSet::from([b'B']));
    let other = scene.submit(&"P".repeat(200), 1);
    // Prefill turns until the first prompt is done. Whatever comes next stays at the gate ...
    let mut turns = vec![at_gate];
    while first.try_recv().is_none() {
        turns.push(scene.turn());
        assert!(turns.len() < 10, "{turns:?}");
    }
    // ... while the token of the pass before is there already.
    assert!(matches!(first.recv_blocking(), Some(Event::Token(_))));
    assert!(
        turns.iter().any(|turn| turn.prefills.contains(&b'P')),
        "the prompts compete: {turns:?}"
    );
    // From here on the new generation has its turns like any other.
    let mut next = vec![turns.pop().expect("the turn at the gate")];
    next.extend((0..8).map(|_| scene.turn()));
    assert_eq!(stolen_turns(&next, 9), [0_usize; 0], "{next:?}");
    assert!(
        next[..2].iter().any(|turn| turn.decode_rows == 1),
        "{next:?}"
    );
    drop(other);
    drop(first);
    scene.end();
}
