//! Where objects are kept, seen from the store: a few operations that may fail and may take their time.

use std::io;

use super::key::{Key, ObjectName};

/// Keeps immutable objects under their names, and logs beside them: a folder, a bucket, or a test's memory that tears and loses them.
///
/// A store is opened, and its logs are read for the first time, on the thread that starts it; all else is called from the store's
/// own threads. Writing and deleting happen only between [`lock`](Self::lock) and [`unlock`](Self::unlock), on one thread at a
/// time; objects, logs and listings are read at any time, by several threads at once.
pub trait Objects: Send + Sync {
    /// Waits until no other store changes these objects, and keeps it so until [`unlock`](Self::unlock). Gives whether
    /// another one may have changed them since the last time; what a killed one had begun is cleared away then.
    ///
    /// # Errors
    /// When the objects cannot be changed, or cannot be reached.
    fn lock(&self) -> io::Result<bool>;

    /// Ends what [`lock`](Self::lock) began.
    fn unlock(&self);

    /// All objects and logs. Names of other makers are left out.
    ///
    /// # Errors
    /// When they cannot be reached.
    fn list(&self) -> io::Result<Listing>;

    /// Puts a whole object into `into`, which is emptied first.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none; others when it cannot be read.
    fn get(&self, name: &ObjectName, into: &mut Vec<u8>) -> io::Result<()>;

    /// Writes an object, all of it or nothing, whatever happens. Until it is all there, what it takes counts like an object.
    ///
    /// # Errors
    /// When it is not there afterwards.
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()>;

    /// Removes an object; that there is none is no error.
    ///
    /// # Errors
    /// When it may still be there.
    fn delete(&self, name: &ObjectName) -> io::Result<()>;

    /// The whole records of a log, in the order in which they came. A log that nobody has written is empty.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_log(&self, log: &Key) -> io::Result<Vec<Vec<u8>>>;

    /// Adds a record to a log, all of it or nothing, whatever happens. Gives the bytes that the log then takes.
    ///
    /// # Errors
    /// When it is not there afterwards.
    fn append(&self, log: &Key, record: &[u8]) -> io::Result<u64>;

    /// Puts one record in the place of a log. Gives the bytes that the log then takes.
    ///
    /// # Errors
    /// When it is not there afterwards; the old one may still be.
    fn replace_log(&self, log: &Key, record: &[u8]) -> io::Result<u64>;

    /// Removes a log; that there is none is no error.
    ///
    /// # Errors
    /// When it may still be there.
    fn delete_log(&self, log: &Key) -> io::Result<()>;
}

/// What is there.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The objects, in any order.
    pub objects: Vec<Listed>,
    /// The logs and their bytes.
    pub logs: Vec<(Key, u64)>,
}

/// An object of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: ObjectName,
    /// Its size.
    pub bytes: u64,
    /// When it was last written or read, in seconds since 1970.
    pub modified_s: u64,
}

/// The right to change objects, while it lives.
pub(crate) struct Held<'a> {
    objects: &'a dyn Objects,
    /// Another store may have changed them.
    pub(crate) changed: bool,
}

impl<'a> Held<'a> {
    pub(crate) fn take(objects: &'a dyn Objects) -> io::Result<Self> {
        let changed = objects.lock()?;
        Ok(Self { objects, changed })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.objects.unlock();
    }
}
