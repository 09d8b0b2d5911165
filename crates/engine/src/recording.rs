//! The scheduling log of a run on its way to a file: fetched after every step, written by a thread of its own.
//!
//! The engine never waits for the disk. What does not fit the channel stays in memory, up to a bound; beyond it, or when
//! the disk fails, the recording ends with one warning and the engine goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use andante_sched::Scheduler;

/// Bytes gathered before a piece is handed to the writer, while there is work to do.
const PIECE_BYTES: usize = 16 << 10;
/// Pieces that may wait for the writer.
const PIECES: usize = 64;
/// Bytes that may wait beside the channel.
const MOST_BYTES: usize = 64 << 20;

/// See the module.
pub(crate) struct Recording {
    /// What the scheduler has recorded and the writer has not got.
    log: Vec<u8>,
    writer: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
}

impl Recording {
    /// Records `scheduler`, from its first call, to `output`.
    pub(crate) fn new(
        scheduler: &mut Scheduler,
        output: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES);
        let thread = std::thread::Builder::new()
            .name("recording".into())
            .spawn(move || write(&pieces, output))?;
        scheduler.record(true);
        Ok(Self {
            log: Vec::new(),
            writer: Some((sender, thread)),
        })
    }

    /// Fetches what the scheduler has recorded and hands it on when there is enough of it, or when `all` of it shall go.
    pub(crate) fn fetch(&mut self, scheduler: &mut Scheduler, all: bool) {
        let Some((sender, _)) = &self.writer else {
            return;
        };
        scheduler.take_log(&mut self.log);
        if self.log.len() < PIECE_BYTES && !all || self.log.is_empty() {
            return;
        }
        match sender.try_send(std::mem::take(&mut self.log)) {
            Ok(()) => return,
            Err(TrySendError::Full(log)) if log.len() <= MOST_BYTES => {
                self.log = log;
                return;
            }
            Err(TrySendError::Full(_)) => {
                tracing::warn!("the recording has ended: the disk is too slow for it");
            }
            // The writer has said why.
            Err(TrySendError::Disconnected(_)) => {}
        }
        self.writer = None;
        scheduler.record(false);
    }

    /// Writes what is left, and waits until it is written.
    pub(crate) fn finish(&mut self, scheduler: &mut Scheduler) {
        self.fetch(scheduler, true);
        if let Some((sender, thread)) = self.writer.take() {
            // A writer that has failed has said so.
            let _ = sender.send(std::mem::take(&mut self.log));
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Opens a file for the log of a run. Prompts are in it, so nobody else may read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    // The file may have been there, with other permissions.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

fn write(pieces: &Receiver<Vec<u8>>, mut output: impl Write) {
    for piece in pieces {
        if let Err(error) = output.write_all(&piece).and_then(|()| output.flush()) {
            tracing::warn!(%error, "the recording has ended: it cannot be written");
            return;
        }
    }
}
