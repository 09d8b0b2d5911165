//! The byte format of one object: the KV of one block. `docs/kv-format.md` has the tables.
//!
//! Everything before the checksum is covered by it, so one wrong byte anywhere makes the object a miss. What an object
//! claims to hold is compared with what was asked for, tokens included, before any of it is used.

use super::key::Key;
use super::secret::{self, Secret};

const MAGIC: [u8; 8] = *b"ANDANTEK";
const VERSION: u32 = 1;
/// Bytes before the tokens.
const HEADER: usize = 136;
const CHECKSUM: usize = 32;

/// How the KV bytes are written.
const RAW: u32 = 0;
const LZ4: u32 = 1;

/// What an object holds, beside the KV bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The model: see [`Model::kv_identity`](andante_model::Model::kv_identity).
    pub identity: [u8; 32],
    /// The block's name.
    pub key: Key,
    /// The name of what it continues.
    pub parent: Key,
    /// Blocks before it.
    pub depth: u32,
    /// The block's tokens.
    pub tokens: Vec<u32>,
    /// Bytes of its KV in memory.
    pub kv_bytes: u64,
    /// Bytes of its KV in the object.
    pub stored_bytes: u64,
}

/// Why an object is not what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// Its bytes are not those that were written, or of a version that this program does not know.
    Damaged,
    /// It is whole, but holds something else than its name says.
    Foreign,
    /// It is encrypted, with another key than this or without one being given: nobody can tell what it holds.
    Sealed,
}

/// A block to be written or asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) identity: &'a [u8; 32],
    pub(crate) key: Key,
    pub(crate) parent: Key,
    pub(crate) depth: u32,
    pub(crate) tokens: &'a [u32],
}

/// Writes an object into `out`, which is emptied first.
pub(crate) fn encode(block: &Block<'_>, kv: &[u8], out: &mut Vec<u8>) {
    let start = HEADER + 4 * block.tokens.len();
    let most = lz4_flex::block::get_maximum_output_size(kv.len());
    out.clear();
    out.resize(start + most + CHECKSUM, 0);
    let packed = lz4_flex::block::compress_into(kv, &mut out[start..start + most])
        .expect("the room is what the format can need at most");
    let (encoding, stored) = if packed < kv.len() {
        (LZ4, packed)
    } else {
        out[start..start + kv.len()].copy_from_slice(kv);
        (RAW, kv.len())
    };
    let mut head = Vec::with_capacity(start);
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend(encoding.to_le_bytes());
    head.extend(block.identity);
    head.extend(block.key.as_bytes());
    head.extend(block.parent.as_bytes());
    head.extend(block.depth.to_le_bytes());
    let tokens = u32::try_from(block.tokens.len()).expect("a block has few tokens");
    head.extend(tokens.to_le_bytes());
    head.extend((kv.len() as u64).to_le_bytes());
    head.extend((stored as u64).to_le_bytes());
    head.extend(block.tokens.iter().flat_map(|token| token.to_le_bytes()));
    out[..start].copy_from_slice(&head);
    out.truncate(start + stored);
    let checksum = blake3::hash(out);
    out.extend(checksum.as_bytes());
}

/// Puts the KV of an object into `kv`, whose length it must have, if the object is whole and holds `block`.
pub(crate) fn decode(object: &[u8], block: &Block<'_>, kv: &mut [u8]) -> Result<(), Reject> {
    let parts = Parts::of(object)?;
    let info = &parts.info;
    let asked = ObjectInfo {
        identity: *block.identity,
        key: block.key,
        parent: block.parent,
        depth: block.depth,
        tokens: block.tokens.to_vec(),
        kv_bytes: kv.len() as u64,
        stored_bytes: info.stored_bytes,
    };
    if *info != asked {
        return Err(Reject::Foreign);
    }
    match parts.encoding {
        RAW if parts.payload.len() == kv.len() => kv.copy_from_slice(parts.payload),
        LZ4 => match lz4_flex::block::decompress_into(parts.payload, kv) {
            Ok(bytes) if bytes == kv.len() => {}
            _ => return Err(Reject::Damaged),
        },
        _ => return Err(Reject::Damaged),
    }
    Ok(())
}

/// What a whole object holds; it is decrypted in its place, if it is encrypted. Its KV bytes are not looked at beyond the
/// checksum.
///
/// # Errors
/// [`Reject::Damaged`] when it is not whole; others when `secret` is not what it is encrypted with.
pub fn inspect(object: &mut [u8], secret: Option<&Secret>) -> Result<ObjectInfo, Reject> {
    info(secret::open(secret::of(object, secret), object)?)
}

/// As [`inspect`], of an object that is not encrypted.
pub(crate) fn info(plain: &[u8]) -> Result<ObjectInfo, Reject> {
    Ok(Parts::of(plain)?.info)
}

/// An object taken apart, its checksum verified.
struct Parts<'a> {
    info: ObjectInfo,
    encoding: u32,
    payload: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(object: &'a [u8]) -> Result<Self, Reject> {
        Self::parse(object).ok_or(Reject::Damaged)
    }

    fn parse(object: &'a [u8]) -> Option<Self> {
        let (body, checksum) = object.split_last_chunk::<CHECKSUM>()?;
        if body.len() < HEADER || *blake3::hash(body).as_bytes() != *checksum {
            return None;
        }
        let mut reader = Reader(body);
        let magic: [u8; 8] = reader.take()?;
        let version = reader.u32()?;
        if magic != MAGIC || version != VERSION {
            return None;
        }
        let encoding = reader.u32()?;
        let (identity, key, parent) = (reader.take()?, reader.take()?, reader.take()?);
        let (depth, tokens) = (reader.u32()?, reader.u32()? as usize);
        let (kv_bytes, stored_bytes) = (reader.u64()?, reader.u64()?);
        let words = reader.0.get(..tokens.checked_mul(4)?)?.chunks_exact(4);
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let payload = &reader.0[4 * tokens..];
        if payload.len() as u64 != stored_bytes {
            return None;
        }
        let info = ObjectInfo {
            identity,
            key: Key::from_bytes(key),
            parent: Key::from_bytes(parent),
            depth,
            tokens: words.map(word).collect(),
            kv_bytes,
            stored_bytes,
        };
        Some(Self {
            info,
            encoding,
            payload,
        })
    }
}

/// Little-endian numbers from the front of what is left.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk::<N>()?;
        self.0 = left;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: [u8; 32] = [3; 32];

    fn block(tokens: &[u32]) -> Block<'_> {
        let parent = Key::root(&IDENTITY);
        Block {
            identity: &IDENTITY,
            key: parent.child(tokens),
            parent,
            depth: 0,
            tokens,
        }
    }

    /// Bytes that LZ4 can pack, and bytes that it cannot.
    fn payloads() -> [Vec<u8>; 3] {
        let mut state = 1_u32;
        let noise = (0..300).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        [b"ab".repeat(150), noise.collect(), Vec::new()]
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        for (kv, packs) in payloads().iter().zip([true, false, false]) {
            let mut object = vec![9; 5];
            encode(&block(&[1, 2, 70_000]), kv, &mut object);
            let mut read = vec![0xAA; kv.len()];
            assert_eq!(decode(&object, &block(&[1, 2, 70_000]), &mut read), Ok(()));
            assert_eq!(read, *kv);
            let info = inspect(&mut object, None).expect("whole");
            assert_eq!(info.tokens, [1, 2, 70_000]);
            assert_eq!(info.kv_bytes, kv.len() as u64);
            assert_eq!(info.stored_bytes < info.kv_bytes, packs);
            assert_eq!(object.len() as u64, 136 + 12 + info.stored_bytes + 32);
        }
    }

    #[test]
    fn the_fields_stand_where_the_document_says() {
        let mut object = Vec::new();
        let block = Block {
            depth: 0x0102_0304,
            ..block(&[0x0A0B_0C0D])
        };
        encode(&block, &[1, 2, 3], &mut object);
        assert_eq!(&object[..8], b"ANDANTEK");
        assert_eq!(&object[8..16], &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&object[16..48], &IDENTITY);
        assert_eq!(&object[48..80], block.key.as_bytes());
        assert_eq!(&object[80..112], block.parent.as_bytes());
        assert_eq!(&object[112..120], &[4, 3, 2, 1, 1, 0, 0, 0]);
        assert_eq!(
            &object[120..136],
            &[3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(&object[136..143], &[0x0D, 0x0C, 0x0B, 0x0A, 1, 2, 3]);
        assert_eq!(&object[143..], blake3::hash(&object[..143]).as_bytes());
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_a_miss() {
        for kv in payloads() {
            let mut object = Vec::new();
            encode(&block(&[1, 2]), &kv, &mut object);
            let mut read = vec![0; kv.len()];
            for index in 0..object.len() {
                for flip in [1, 0x80, 0xFF] {
                    object[index] ^= flip;
                    let result = decode(&object, &block(&[1, 2]), &mut read);
                    assert_eq!(result, Err(Reject::Damaged), "byte {index}");
                    object[index] ^= flip;
                }
                let cut = decode(&object[..index], &block(&[1, 2]), &mut read);
                assert_eq!(cut, Err(Reject::Damaged), "{index} bytes");
            }
            object.push(0);
            let longer = decode(&object, &block(&[1, 2]), &mut read);
            assert_eq!(longer, Err(Reject::Damaged));
        }
    }

    #[test]
    fn another_block_of_a_right_name_is_foreign() {
        let (other, kv) = ([4; 32], [5; 40]);
        let right = block(&[1, 2]);
        let stored = [
            Block {
                identity: &other,
                ..right
            },
            Block {
                key: other_key(),
                ..right
            },
            Block {
                parent: other_key(),
                ..right
            },
            Block { depth: 1, ..right },
            Block {
                tokens: &[1, 3],
                ..right
            },
            Block {
                tokens: &[1, 2, 3],
                ..right
            },
        ];
        let (mut object, mut read) = (Vec::new(), [0; 40]);
        for wrong in stored {
            encode(&wrong, &kv, &mut object);
            assert_eq!(decode(&object, &right, &mut read), Err(Reject::Foreign));
        }
        encode(&right, &kv[1..], &mut object);
        assert_eq!(decode(&object, &right, &mut read), Err(Reject::Foreign));
        assert_eq!(read, [0; 40], "nothing of it was used");
    }

    fn other_key() -> Key {
        Key::root(&[9; 32])
    }
}
