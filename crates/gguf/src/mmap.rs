//! The one unsafe room: a read-only memory map of a model file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// A file's bytes, mapped read-only.
#[derive(Debug)]
pub(crate) struct Mapping(Mmap);

impl Mapping {
    /// Maps the whole file. Nothing is read until it is touched.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and lives as long as the value returned. What remains is that
        // its bytes must not change meanwhile, which no program can enforce on Unix: as everywhere
        // in the field, a model file in use is not rewritten in place (`GgufFile` says so). A file
        // that is cut short ends the process by SIGBUS.
        #[expect(unsafe_code, reason = "mapping a file is unsafe in every library")]
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Lets the system take back the memory of these bytes; they are read again when they are touched.
    pub(crate) fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            let (start, len) = (bytes.start, bytes.len());
            // SAFETY: the map is of a file and never written, so nothing but what the file holds can come back.
            #[expect(unsafe_code, reason = "dropping pages could lose what was written")]
            let result = unsafe { self.0.unchecked_advise_range(advice, start, len) };
            // Advice: without it more memory is in use, and nothing is wrong.
            let _ = result;
        }
    }
}
