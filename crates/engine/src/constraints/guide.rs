//! One answer's way through its constraint: the mask for its next token is found out on another thread while the model computes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use andante_text::{Matcher, TextError};

use super::Form;
use crate::clock::Clock;
use crate::error::Failure;

/// What the work costs, in µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MaskTime {
    /// Masks found out.
    pub(crate) masks: u64,
    /// Spent on them, on their own thread.
    pub(crate) mask_us: u64,
    /// How much of that the engine waited for.
    pub(crate) wait_us: u64,
}

/// Follows one answer.
///
/// The matcher goes back and forth between here and the thread of the masks: each has it in turn, so which of them is
/// faster decides nothing but who waits.
#[derive(Debug)]
pub(crate) struct Guide {
    masks: Masks,
    whole: bool,
    /// Where the mask that was asked for last arrives.
    found: Receiver<Found>,
    time: MaskTime,
}

/// A matcher with its mask, and the time that took.
type Found = (Result<Box<Matcher>, TextError>, u64);

impl Guide {
    /// Asks for the first mask.
    pub(crate) fn new(form: &Form, masks: &Masks) -> Self {
        Self {
            found: masks.find(Place::Start(Arc::clone(&form.start))),
            whole: form.whole,
            masks: masks.clone(),
            time: MaskTime::default(),
        }
    }

    /// Whether it follows all that the model says, see [`Form::whole`].
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Asks for the next mask.
    pub(crate) fn go_on(&mut self, matcher: Box<Matcher>) {
        self.found = self.masks.find(Place::Further(matcher));
    }

    /// The matcher with the mask that was asked for last, waiting for it where need be: how long is bounded by the limits of
    /// [`andante_text::ConstraintCompiler`].
    ///
    /// # Errors
    /// [`Failure::DeadEnd`], or [`Failure::Constraint`] where a limit was reached.
    pub(crate) fn next(&mut self) -> Result<Box<Matcher>, Failure> {
        let found = match self.found.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let since_us = self.masks.clock.now_us();
                let found = self.found.recv().ok();
                self.time.wait_us += self.masks.clock.now_us().saturating_sub(since_us);
                found
            }
        };
        // Nothing comes when the other thread has panicked.
        let (matcher, took_us) = found.ok_or(Failure::Constraint)?;
        self.time.masks += 1;
        self.time.mask_us += took_us;
        matcher.map_err(|error| failure(&error))
    }

    /// What was spent since the last call.
    pub(crate) fn take_time(&mut self) -> MaskTime {
        std::mem::take(&mut self.time)
    }
}

/// Ends an answer whose constraint cannot be followed further.
pub(crate) fn failure(error: &TextError) -> Failure {
    match error {
        TextError::DeadEnd => Failure::DeadEnd,
        error => {
            tracing::warn!("a constraint cannot be followed further: {error}");
            Failure::Constraint
        }
    }
}

/// The way to the thread that finds out masks. The thread ends when nobody can ask for one any more.
#[derive(Clone)]
pub(crate) struct Masks {
    jobs: Sender<Job>,
    clock: Arc<dyn Clock>,
}

impl Masks {
    pub(crate) fn spawn(clock: Arc<dyn Clock>) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let time = Arc::clone(&clock);
        let work = move || inbox.iter().for_each(|job| job.run(&*time));
        let thread = std::thread::Builder::new().name("masks".into());
        if let Err(error) = thread.spawn(work) {
            tracing::warn!("masks are found out by the engine itself: {error}");
        }
        Self { jobs, clock }
    }

    /// As if there were no thread to be had.
    #[cfg(test)]
    pub(super) fn without_thread(&self) -> Self {
        Self {
            jobs: channel().0,
            clock: Arc::clone(&self.clock),
        }
    }

    /// Has a mask found out. Without the thread that is done at once.
    fn find(&self, place: Place) -> Receiver<Found> {
        let (home, found) = channel();
        if let Err(refused) = self.jobs.send(Job { place, home }) {
            refused.0.run(&*self.clock);
        }
        found
    }
}

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Masks").finish_non_exhaustive()
    }
}

/// A mask to be found out.
struct Job {
    place: Place,
    home: Sender<Found>,
}

/// Where in a constraint.
enum Place {
    /// At its beginning, which others share.
    Start(Arc<Matcher>),
    /// Where a token has led.
    Further(Box<Matcher>),
}

impl Job {
    fn run(self, clock: &dyn Clock) {
        let since_us = clock.now_us();
        let mut matcher = match self.place {
            Place::Start(start) => Box::new(Matcher::clone(&start)),
            Place::Further(matcher) => matcher,
        };
        let found = matcher.compute_mask().map(|()| matcher);
        let took_us = clock.now_us().saturating_sub(since_us);
        // An answer that has ended meanwhile does not listen any more.
        _ = self.home.send((found, took_us));
    }
}
