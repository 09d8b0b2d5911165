//! What is kept beside the blocks, in logs of records: how prompts and answers were spelt, and answers as they were sampled.
//! `docs/kv-format.md` has the tables.

use std::io;
use std::sync::Arc;

use super::index::charged;
use super::objects::Held;
use super::secret;
use super::state::Shared;
use crate::spellings::{PIECE, Piece, PieceId, Spellings};
use crate::turns::Turns;

const VERSION: u32 = 1;
/// Bytes of a piece before its tokens.
const PIECE_HEAD: usize = 24;
/// A log of more records is written anew as one.
const MOST_RECORDS: usize = 256;
/// Most bytes of a log; where the budget is small, a sixteenth of it.
const MOST_BYTES: u64 = 16 << 20;
/// A model's logs.
pub(super) const LOGS: usize = 2;

/// What outlives an engine beside the KV of its prompts and answers.
#[derive(Debug, Clone, Default)]
pub struct Remembered {
    pub(crate) spellings: Arc<Spellings>,
    pub(crate) turns: Arc<Turns>,
}

impl Remembered {
    /// What each log keeps.
    fn kept(&self) -> [&dyn Kept; LOGS] {
        [&*self.spellings, &*self.turns]
    }
}

/// What a log keeps.
pub(crate) trait Kept {
    /// A record of what was not given before, if there is anything.
    fn take_unwritten(&self) -> Option<Vec<u8>>;

    /// A record of what is likeliest to be wanted, of so many bytes at most.
    fn latest(&self, most_bytes: usize) -> Vec<u8>;

    /// Takes in a record; whether it is one.
    fn add(&self, record: &[u8]) -> bool;
}

/// What is known of a log.
#[derive(Debug, Default)]
pub(super) struct Log {
    records: usize,
    /// All that others have written was taken in.
    read: bool,
    /// It lacks something that will not be given again.
    lacks: bool,
}

impl Log {
    /// Others may have changed it.
    pub(super) fn forget(&mut self) {
        self.read = false;
    }
}

impl Shared {
    /// Takes in what was said to other servers, and to this one before a restart.
    pub(super) fn read_said(&self, remembered: &Remembered) -> io::Result<()> {
        let mut kept = remembered.kept().into_iter().enumerate();
        kept.try_for_each(|(log, kept)| self.read_log(log, kept))
    }

    /// Writes what was said since the last time.
    pub(super) fn write_said(&self, remembered: &Remembered) -> io::Result<()> {
        let held = Held::take(&*self.objects)?;
        if held.changed {
            self.renew()?;
        }
        let mut kept = remembered.kept().into_iter().enumerate();
        kept.try_for_each(|(log, kept)| self.write_log(log, kept))
    }

    fn read_log(&self, log: usize, kept: &dyn Kept) -> io::Result<()> {
        let records = self.objects.read_log(&self.logs[log])?;
        let count = records.len();
        for mut record in records {
            let plain = secret::open(self.config.secret.as_ref(), &mut record);
            if !plain.is_ok_and(|plain| kept.add(plain)) {
                self.state().stats.damaged += 1;
            }
        }
        let mut state = self.state();
        state.own_logs[log].records = count;
        state.own_logs[log].read = true;
        Ok(())
    }

    fn write_log(&self, log: usize, kept: &dyn Kept) -> io::Result<()> {
        if !self.state().own_logs[log].read {
            self.read_log(log, kept)?;
        }
        let name = self.logs[log];
        let most = self.log_share();
        let unwritten = kept.take_unwritten();
        let (known, lacks, full) = {
            let mut state = self.state();
            let known = state.logs.get(&name).copied();
            let own = &mut state.own_logs[log];
            if unwritten.is_none() && !own.lacks {
                return Ok(());
            }
            let lacks = std::mem::replace(&mut own.lacks, true);
            (known, lacks, own.records >= MOST_RECORDS)
        };
        let bytes = known.unwrap_or(0);
        let mut record = self.sealed(unwritten.unwrap_or_default());
        // One that is gone lacks everything, whoever took it away.
        let whole = lacks || full || known.is_none() || bytes + record.len() as u64 > most;
        let mut grown = charged(bytes + record.len() as u64) - charged(bytes);
        if whole {
            let half = usize::try_from(most / 2).unwrap_or(usize::MAX);
            record = self.sealed(kept.latest(half));
            grown = charged(record.len() as u64);
        }
        if record.len() as u64 > most || !self.make_room(grown, &name)? {
            return Ok(());
        }
        let size = if whole {
            self.objects.replace_log(&name, &record)?
        } else {
            self.objects.append(&name, &record)?
        };
        let mut state = self.state();
        state.logs.insert(name, size);
        let own = &mut state.own_logs[log];
        own.records = if whole { 1 } else { own.records + 1 };
        own.lacks = false;
        Ok(())
    }

    /// Most bytes of each of this model's logs.
    pub(super) fn log_share(&self) -> u64 {
        MOST_BYTES.min(self.config.budget_bytes / 16)
    }

    fn sealed(&self, record: Vec<u8>) -> Vec<u8> {
        secret::seal(self.config.secret.as_ref(), record)
    }
}

impl Kept for Spellings {
    fn take_unwritten(&self) -> Option<Vec<u8>> {
        let pieces = self.take_unwritten();
        (!pieces.is_empty()).then(|| encode(&pieces))
    }

    fn latest(&self, most_bytes: usize) -> Vec<u8> {
        encode(&self.latest(most_bytes / (PIECE_HEAD + 4 * PIECE)))
    }

    fn add(&self, record: &[u8]) -> bool {
        let pieces = decode(record);
        pieces.map(|pieces| self.add(pieces)).is_some()
    }
}

fn encode(pieces: &[Piece]) -> Vec<u8> {
    let mut record = VERSION.to_le_bytes().to_vec();
    for piece in pieces {
        record.extend(piece.parent.0);
        record.extend(piece.ends.to_le_bytes());
        let count = u32::try_from(piece.tokens.len()).expect("a piece is short");
        record.extend(count.to_le_bytes());
        record.extend(piece.tokens.iter().flat_map(|token| token.to_le_bytes()));
    }
    record
}

/// `None` for what [`encode`] does not write.
fn decode(record: &[u8]) -> Option<Vec<Piece>> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let (version, mut rest) = record.split_at_checked(4)?;
    if word(version) != VERSION {
        return None;
    }
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (head, more) = rest.split_at_checked(PIECE_HEAD)?;
        let (ends, count) = (word(&head[16..20]), word(&head[20..]) as usize);
        if !(1..=PIECE).contains(&count) || u64::from(ends) >> count != 0 {
            return None;
        }
        let (tokens, more) = more.split_at_checked(4 * count)?;
        pieces.push(Piece {
            parent: PieceId(head[..16].try_into().expect("16 bytes")),
            ends,
            tokens: tokens.chunks_exact(4).map(word).collect(),
        });
        rest = more;
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let piece = |parent, ends, tokens: &[u32]| Piece {
            parent,
            ends,
            tokens: tokens.into(),
        };
        let root = PieceId::root(0x0102_0304_0506_0708);
        let pieces = vec![
            piece(root, 0x8000_0001, &[7; 32]),
            piece(PieceId([9; 16]), 0b10, &[1, 0x0A0B_0C0D]),
        ];
        let record = encode(&pieces);
        assert_eq!(decode(&record), Some(pieces));
        assert_eq!(record[..12], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(record[12..20], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(record[20..28], [1, 0, 0, 0x80, 32, 0, 0, 0]);
        let second = 28 + 4 * 32;
        assert_eq!(record[second..second + 16], [9; 16]);
        let rest = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A];
        assert_eq!(record[second + 16..], rest);
        for end in (0..record.len()).filter(|&end| ![4, second].contains(&end)) {
            assert_eq!(decode(&record[..end]), None, "{end}");
        }
        for (at, byte) in [(0, 2), (24, 0), (24, 33), (second + 16, 4)] {
            let mut wrong = record.clone();
            wrong[at] = byte;
            assert_eq!(decode(&wrong), None, "{byte} at {at}");
        }
    }
}
