//! A cursor over a file's bytes that checks every length against what is left.

use crate::{Fault, Malformed, Place};

/// A fault before the entry it belongs to is named; [`Damage::at`] adds that.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) field: &'static str,
    pub(crate) offset: u64,
    pub(crate) fault: Fault,
}

impl Damage {
    pub(crate) fn at(self, place: Place) -> Malformed {
        Malformed {
            file: None,
            place,
            field: self.field,
            offset: self.offset,
            fault: self.fault,
        }
    }
}

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position as u64
    }

    pub(crate) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Damage> {
        let offset = self.position();
        match self.bytes[self.position..].first_chunk::<N>() {
            Some(chunk) => {
                self.position += N;
                Ok(*chunk)
            }
            None => Err(self.truncated(field, offset, N as u64)),
        }
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Damage> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Damage> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A count of entries, refused unless that many of the smallest size can follow: callers may
    /// then loop over it or allocate for it.
    pub(crate) fn count(&mut self, field: &'static str, min_bytes: u64) -> Result<usize, Damage> {
        let offset = self.position();
        let count = self.u64(field)?;
        let remaining = self.remaining();
        match usize::try_from(count) {
            Ok(fits) if count <= remaining / min_bytes => Ok(fits),
            _ => Err(Damage {
                field,
                offset,
                fault: Fault::TooMany {
                    count,
                    min_bytes,
                    remaining,
                },
            }),
        }
    }

    /// Bytes behind a 64-bit length.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], Damage> {
        let offset = self.position();
        let len = self.u64(field)?;
        if len > self.remaining() {
            return Err(self.truncated(field, offset, len));
        }
        // Not above `remaining`, which came from a `usize`.
        let start = self.position;
        self.position += len as usize;
        Ok(&self.bytes[start..self.position])
    }

    /// A string that must be UTF-8.
    pub(crate) fn str(&mut self, field: &'static str) -> Result<&'a str, Damage> {
        let offset = self.position();
        str::from_utf8(self.string(field)?).map_err(|error| Damage {
            field,
            offset,
            fault: Fault::NotUtf8 {
                valid: error.valid_up_to() as u64,
            },
        })
    }

    fn truncated(&self, field: &'static str, offset: u64, needed: u64) -> Damage {
        Damage {
            field,
            offset,
            fault: Fault::Truncated {
                needed,
                remaining: self.remaining(),
            },
        }
    }
}
