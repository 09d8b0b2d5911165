//! The one unsafe room: a read-only memory map of a model file.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// A file's bytes, mapped read-only.
#[derive(Debug)]
pub(crate) struct Mapping(Mmap);

impl Mapping {
    /// Maps the whole file. Nothing is read until it is touched.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and owned by the value returned. Its bytes must not change while borrowed, which no program can
        // enforce on Unix: as everywhere in the field, a model file is not rewritten in place while it is in use. A file cut short
        // meanwhile ends the process by SIGBUS. Nothing in this crate relies on reading the same bytes twice for memory safety: values are copied out
        // once checked, and tensor ranges are checked against the mapped length, which does not change.
        #[expect(unsafe_code, reason = "mapping a file is unsafe in every library")]
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
