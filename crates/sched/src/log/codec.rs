//! How single values stand in a scheduling log. One list of fields serves writing and reading, and the compiler demands
//! every field.

use std::collections::BTreeMap;

use crate::config::{Config, Mode};
use crate::cost::{CostModel, Fixed, IoCost};
use crate::step::{IoKind, IoUnit, Outcome, Prefill, Priority, StateCopy, StateMoves, Step};

/// Why a value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// There are too few bytes.
    Ended,
    /// No value is written so.
    Wrong,
}

/// The bytes still to read.
#[derive(Debug)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The bytes from `start` to here.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Ended)?;
        self.at += 1;
        Ok(byte)
    }

    /// A list's count. Every item has at least a byte, so that no list is longer than the bytes that are left.
    fn count(&mut self) -> Result<usize, Fault> {
        let count = u64::get(self)?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.bytes.len() - self.at)
            .ok_or(Fault::Ended)
    }
}

/// Something that can be written to a log and read from it.
pub(super) trait Value: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(input: &mut Input<'_>) -> Result<Self, Fault>;
}

impl Value for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = input.byte()?;
            let bits = Self::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Fault::Wrong);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Wrong)
    }
}

impl Value for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        Self::try_from(u64::get(input)?).map_err(|_| Fault::Wrong)
    }
}

impl Value for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        ((self << 1) ^ (self >> 63)).cast_unsigned().put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        let coded = u64::get(input)?;
        Ok((coded >> 1).cast_signed() ^ -(coded & 1).cast_signed())
    }
}

impl Value for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Wrong),
        }
    }
}

impl<T: Value> Value for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        bool::get(input)?.then(|| T::get(input)).transpose()
    }
}

pub(super) fn put_list<T: Value>(items: &[T], out: &mut Vec<u8>) {
    (items.len() as u64).put(out);
    for item in items {
        item.put(out);
    }
}

impl<T: Value> Value for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        let count = input.count()?;
        (0..count).map(|_| T::get(input)).collect()
    }
}

impl Value for BTreeMap<u64, u32> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        let count = input.count()?;
        (0..count)
            .map(|_| Ok((u64::get(input)?, u32::get(input)?)))
            .collect()
    }
}

impl Value for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        let code = match self {
            Self::Prefilled => 0,
            Self::Sampling => 1,
            Self::Finish => 2,
            Self::Failed => 3,
            Self::Token(token) => 4 + u64::from(*token),
        };
        code.put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        Ok(match u64::get(input)? {
            0 => Self::Prefilled,
            1 => Self::Sampling,
            2 => Self::Finish,
            3 => Self::Failed,
            code => Self::Token(u32::try_from(code - 4).map_err(|_| Fault::Wrong)?),
        })
    }
}

impl Value for IoKind {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Load {
                id,
                start_block,
                blocks,
            } => {
                out.push(0);
                id.put(out);
                start_block.put(out);
                blocks.put(out);
            }
            Self::Save { blocks } => {
                out.push(1);
                blocks.put(out);
            }
        }
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        Ok(match input.byte()? {
            0 => Self::Load {
                id: u64::get(input)?,
                start_block: u32::get(input)?,
                blocks: u32::get(input)?,
            },
            1 => Self::Save {
                blocks: Vec::get(input)?,
            },
            _ => return Err(Fault::Wrong),
        })
    }
}

/// Enumerations without fields, by number.
macro_rules! numbers {
    ($type:ident { $($variant:ident = $number:literal),* $(,)? }) => {
        impl Value for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $(Self::$variant => $number),* });
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
                match input.byte()? {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(Fault::Wrong),
                }
            }
        }
    };
}

/// Structures, field by field in this order.
macro_rules! fields {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl Value for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($field.put(out);)*
            }

            fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
                Ok(Self { $($field: Value::get(input)?),* })
            }
        }
    };
}

numbers!(Mode { Mix = 0, HandOff = 1 });
numbers!(Priority { Low = 0, Normal = 1, High = 2 });
fields!(IoCost { unit, block });

impl Value for CostModel {
    fn put(&self, out: &mut Vec<u8>) {
        for coefficient in self.coefficients() {
            coefficient.put(out);
        }
    }

    fn get(input: &mut Input<'_>) -> Result<Self, Fault> {
        let mut coefficients = [Fixed::default(); 7];
        for coefficient in &mut coefficients {
            *coefficient = Value::get(input)?;
        }
        Ok(Self::from_coefficients(coefficients))
    }
}

fields!(Prefill {
    id,
    start,
    tokens,
    last
});
fields!(IoUnit { unit_no, kind });
fields!(StateCopy { from, to });
fields!(StateMoves {
    restore,
    load,
    keep
});
fields!(Step {
    step_no,
    decode,
    prefill,
    io,
    states,
    predicted_us,
    budget_us,
    contended,
    floor_limited,
});
fields!(Config {
    slots,
    blocks,
    block_tokens,
    max_queue,
    t_stall_us,
    stall_auto,
    t_idle_us,
    q_min,
    q_max,
    q_max_contended,
    row_granule,
    efficiency_permille,
    oldest_permille,
    prefill_share_permille,
    wait_us,
    mode,
    tenant_slots,
    tenant_weights,
    checkpoints,
    checkpoint_blocks,
    save_blocks,
    load_cost,
    save_cost,
    cost,
    fixed_cost,
});

/// FNV-1a with 32 bits (Fowler, Noll, Vo; draft-eastlake-fnv): enough to notice damage.
pub(super) mod fnv1a {
    pub(in crate::log) const START: u32 = 0x811c_9dc5;

    pub(in crate::log) fn digest(state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |state, &byte| {
            (state ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}
