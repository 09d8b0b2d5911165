//! Objects as files of one folder, which several processes may share.
//!
//! A file is written under another name and then renamed, so an object is there as a whole or not at all when a process is
//! killed. Nothing is forced to the disk: what a power cut tears, the checksum finds. Whoever changes the folder holds a lock
//! on the file `lock`, which the system takes back from the dead; a counter in it tells the others that there was a change.
//!
//! Plain files instead of the `object_store` crate's: its half-written files have names of their own choice, which a killed
//! process leaves behind where no listing shows them, and its files have the modes that the umask gives.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::key::{Key, ObjectName};
use super::objects::{Listed, Listing, Objects};
use crate::sync::{Mutex, lock};

const LOCK: &str = "lock";
/// What is being written; only who holds the lock writes.
const INCOMING: &str = "incoming.tmp";
/// How the names of logs end.
const LOG: &str = ".said";
/// Bytes before and after a record of a log: its length, and the beginning of its BLAKE3.
const LENGTH: usize = 4;
const CHECK: usize = 8;

/// A folder of objects.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The lock, while it is held.
    held: Option<File>,
    /// The counter after this store's own last change.
    seen: Option<u64>,
    /// Where the whole records of logs end: what a killed process has begun is behind.
    ends: BTreeMap<Key, u64>,
}

impl Folder {
    /// Takes the folder `path`, which is made if need be, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made, or is something else.
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Takes the folder `path`, which must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(State::default()),
        })
    }

    fn file(&self, name: &ObjectName) -> PathBuf {
        self.path.join(name.to_string())
    }

    fn log(&self, log: &Key) -> PathBuf {
        self.path.join(format!("{log}{LOG}"))
    }

    /// Writes a whole file, or nothing.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let incoming = self.path.join(INCOMING);
        let written = private()
            .truncate(true)
            .open(&incoming)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&incoming, path));
        if written.is_err() {
            // It may be what fills the disk.
            _ = fs::remove_file(&incoming);
        }
        written
    }
}

impl Objects for Folder {
    fn lock(&self) -> io::Result<bool> {
        // Opened anew each time: the folder may have gone and another of its name have come.
        let file = private()
            .read(true)
            .truncate(false)
            .open(self.path.join(LOCK))?;
        file.lock()?;
        let mut counter = [0; 8];
        let count = match file.read_exact_at(&mut counter, 0) {
            Ok(()) => u64::from_le_bytes(counter),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(error),
        };
        let mut state = lock(&self.state);
        let changed = state.seen != Some(count);
        if changed {
            remove(&self.path.join(INCOMING))?;
            state.ends.clear();
        }
        // Before the change, so that it shows even if its maker is killed.
        let next = count.wrapping_add(1);
        file.write_all_at(&next.to_le_bytes(), 0)?;
        state.seen = Some(next);
        state.held = Some(file);
        Ok(changed)
    }

    fn unlock(&self) {
        lock(&self.state).held = None;
    }

    fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let (object, log) = (ObjectName::parse(name), log_name(name));
            if object.is_none() && log.is_none() {
                continue;
            }
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
            listing.logs.extend(log.map(|log| (log, metadata.len())));
            listing.objects.extend(object.map(|name| {
                Listed {
                    name,
                    bytes: metadata.len(),
                    modified_s: modified
                        .duration_since(UNIX_EPOCH)
                        .map_or(0, |since| since.as_secs()),
                }
            }));
        }
        Ok(listing)
    }

    fn get(&self, name: &ObjectName, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        let mut file = File::open(self.file(name))?;
        file.read_to_end(into)?;
        // Its time is when it was last of use. A folder that cannot be written keeps the old one.
        _ = file.set_modified(SystemTime::now());
        Ok(())
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()> {
        self.write(&self.file(name), bytes)
    }

    fn delete(&self, name: &ObjectName) -> io::Result<()> {
        remove(&self.file(name))
    }

    fn read_log(&self, log: &Key) -> io::Result<Vec<Vec<u8>>> {
        let bytes = match fs::read(self.log(log)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        Ok(records(&bytes).map(<[u8]>::to_vec).collect())
    }

    fn append(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        let mut file = private().read(true).truncate(false).open(self.log(log))?;
        let known = lock(&self.state).ends.get(log).copied();
        let end = match known {
            Some(end) => end,
            None => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                let whole: usize = records(&bytes)
                    .map(|record| LENGTH + record.len() + CHECK)
                    .sum();
                file.set_len(whole as u64)?;
                whole as u64
            }
        };
        let bytes = framed(record);
        file.write_all_at(&bytes, end)?;
        let end = end + bytes.len() as u64;
        lock(&self.state).ends.insert(*log, end);
        Ok(end)
    }

    fn replace_log(&self, log: &Key, record: &[u8]) -> io::Result<u64> {
        let bytes = framed(record);
        self.write(&self.log(log), &bytes)?;
        let end = bytes.len() as u64;
        lock(&self.state).ends.insert(*log, end);
        Ok(end)
    }

    fn delete_log(&self, log: &Key) -> io::Result<()> {
        lock(&self.state).ends.remove(log);
        remove(&self.log(log))
    }
}

fn log_name(name: &str) -> Option<Key> {
    Key::parse(name.strip_suffix(LOG)?)
}

/// A record as it stands in a log.
fn framed(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).expect("a log is smaller");
    let check = blake3::hash(record);
    [
        &length.to_le_bytes()[..],
        record,
        &check.as_bytes()[..CHECK],
    ]
    .concat()
}

/// The records of a log, up to the first that is not whole.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (check, rest) = rest.split_at_checked(CHECK)?;
        bytes = rest;
        (blake3::hash(record).as_bytes()[..CHECK] == *check).then_some(record)
    })
}

/// Opens a file for writing, for its owner alone, made if need be.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
