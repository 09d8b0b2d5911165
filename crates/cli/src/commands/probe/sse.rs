//! Server-sent events in a recorded byte stream, after the fact: which event was complete when.
//!
//! Format: WHATWG HTML, "Server-sent events", §9.2.6. Only `data` fields matter to these APIs.

use std::time::Instant;

/// Bytes of a response body and when they came.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// For every read: when it returned and the length of `bytes` after it.
    pub(super) reads: Vec<(Instant, usize)>,
}

/// The data of one event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// When the last byte of its last data line was there; the blank line behind it may have come later.
    pub(super) at: Instant,
    pub(super) data: Vec<u8>,
}

impl Body {
    pub(super) fn push(&mut self, at: Instant, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.reads.push((at, self.bytes.len()));
    }

    /// All events in order. One that the stream's end cuts off is none, as the format has it.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut data: Option<Event> = None;
        let mut start = 0;
        while let Some((line, next)) = self.line(start) {
            if line.is_empty() {
                events.extend(data.take());
            } else if let Some(value) = line.strip_prefix(b"data:") {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                let at = self.arrival(start + line.len());
                match &mut data {
                    Some(event) => {
                        event.at = at;
                        event.data.push(b'\n');
                        event.data.extend_from_slice(value);
                    }
                    None => {
                        data = Some(Event {
                            at,
                            data: value.to_vec(),
                        });
                    }
                }
            }
            start = next;
        }
        events
    }

    /// The line that begins at `start`, and where the next one begins; none when its end is missing.
    fn line(&self, start: usize) -> Option<(&[u8], usize)> {
        let rest = &self.bytes[start..];
        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let ending = if rest[length..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        Some((&rest[..length], start + length + ending))
    }

    /// When the first `length` bytes were there.
    fn arrival(&self, length: usize) -> Instant {
        let read = self.reads.partition_point(|(_, end)| *end < length);
        self.reads[read].0
    }
}

/// Counts events as bytes come, by their blank lines, which costs next to nothing.
#[derive(Debug, Default)]
pub(super) struct EventCount {
    /// Whether the bytes so far end within or right behind an empty line.
    at_line_start: bool,
}

impl EventCount {
    /// How many blank lines end in `bytes`, which follow those of the last call.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let mut blank_lines = 0;
        for byte in bytes {
            match byte {
                b'\n' => {
                    blank_lines += usize::from(self.at_line_start);
                    self.at_line_start = true;
                }
                b'\r' => {}
                _ => self.at_line_start = false,
            }
        }
        blank_lines
    }
}

#[cfg(test)]
mod tests;
