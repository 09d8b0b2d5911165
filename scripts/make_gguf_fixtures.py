"""Makes the small model files that crates/gguf is tested with, without using any code of the crate.

Run:  pip install gguf numpy && python scripts/make_gguf_fixtures.py
It writes crates/gguf/tests/corpus/*.gguf (damaged files, one fault each; the messages expected are in tests/corpus.rs) and
crates/gguf/tests/fixtures/pypi.gguf (a sound file written by the PyPI package `gguf`).
"""

import struct
from pathlib import Path

import gguf
import numpy as np

TESTS = Path(__file__).resolve().parent.parent / "crates/gguf/tests"

U8, U32, BOOL, STRING, ARRAY, U64 = 0, 4, 7, 8, 9, 10
F32, Q4_0, TQ1_0 = 0, 2, 34
HUGE = 2**64 - 1


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return u64(len(data)) + data


def pair(key, value_type, value):
    return string(key) + u32(value_type) + value


def entry(name, dims, kind, offset):
    return string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


NAME = pair("general.name", STRING, string("tiny"))


def file(pairs=(), entries=(), data=b"", version=3, tensors=None, count=None, alignment=32):
    out = b"GGUF" + u32(version)
    out += u64(len(entries) if tensors is None else tensors)
    out += u64(len(pairs) if count is None else count)
    out += b"".join(pairs) + b"".join(entries)
    return out + bytes(-len(out) % alignment) + data if data else out


def nested(depth):
    return u32(ARRAY) + u64(1) + nested(depth - 1) if depth > 1 else u32(U8) + u64(1) + b"\x07"


DAMAGED = {
    "empty": b"",
    "pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "version-1": b"GGUF" + u32(1) + u32(0) + u32(0),
    "version-9": file(version=9),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "cut-in-header": file()[:15],
    "cut-in-value": file([NAME])[:-2],
    "cut-in-entry": file([NAME], [entry("a", [32], F32, 0)])[:-9],
    "tensor-count-huge": file([NAME], tensors=2**63),
    "metadata-count-huge": file([NAME], count=HUGE),
    "key-length-huge": file([u64(HUGE) + b"general.name"], count=1),
    "key-not-utf8": file([pair(b"gen\xff", STRING, string("x"))]),
    "key-twice": file([NAME, NAME]),
    "value-type-unknown": file([pair("a", 13, u32(0))]),
    "bool-2": file([pair("a", BOOL, b"\x02")]),
    "string-length-huge": file([pair("a", STRING, u64(2**63) + b"x")]),
    "array-length-huge": file([pair("a", ARRAY, u32(U64) + u64(2**61 + 1) + u64(5))]),
    "array-type-unknown": file([pair("a", ARRAY, u32(99) + u64(0))]),
    "array-string-cut": file([pair("a", ARRAY, u32(STRING) + u64(2) + string("x") + u64(2**40))]),
    "array-too-deep": file([pair("a", ARRAY, nested(5))]),
    "alignment-0": file([pair("general.alignment", U32, u32(0))]),
    "alignment-48": file([pair("general.alignment", U32, u32(48))]),
    "alignment-u64": file([pair("general.alignment", U64, u64(64))]),
    "name-not-utf8": file([], [entry(b"\xc3\x28", [32], F32, 0)], bytes(128)),
    "name-twice": file([], [entry("a", [8], F32, 0), entry("a", [8], F32, 32)], bytes(64)),
    "dimensions-5": file([], [entry("a", [1, 1, 1, 1, 1], F32, 0)], bytes(32)),
    "dimension-0": file([], [entry("a", [32, 0], F32, 0)], bytes(32)),
    "elements-overflow": file([], [entry("a", [2**32, 2**32], F32, 0)], bytes(32)),
    "bytes-overflow": file([], [entry("a", [2**31, 2**31], F32, 0)], bytes(32)),
    "part-of-a-block": file([], [entry("a", [48], Q4_0, 0)], bytes(64)),
    "format-unknown": file([], [entry("a", [32], 77, 0)], bytes(64)),
    "format-tq1_0": file([], [entry("blk.0.attn_q.weight", [256], TQ1_0, 0)], bytes(96)),
    "data-misaligned": file([], [entry("a", [4], F32, 16)], bytes(64)),
    "data-outside": file([], [entry("a", [32], F32, 32)], bytes(128)),
    "data-offset-huge": file([], [entry("a", [8], F32, HUGE - 31)], bytes(32)),
    "data-overlap": file([], [entry("a", [16], F32, 0), entry("b", [8], F32, 32)], bytes(64)),
    "split-by-another-name": file([pair("split.no", U32, u32(0)), pair("split.count", U32, u32(2))]),
    "split-count-negative": file([pair("split.count", 5, struct.pack("<i", -2))]),
    "terminal-codes": file([pair("\x1b[2J" + "k" * 90, BOOL, b"\x03")]),
}


def write_sound_file(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("t.u8", 250)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 65000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_uint64("t.u64", 2**63 + 1)
    writer.add_int64("t.i64", -(2**62))
    writer.add_float32("t.f32", 0.1)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_string("t.string", "grüße")
    writer.add_array("t.strings", ["a", "", "é"])
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.nested", [[1, 2], [3]])
    writer.add_custom_alignment(64)
    writer.add_tensor("dense", np.arange(6, dtype=np.float32).reshape(2, 3))
    rows = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("quantized", gguf.quants.quantize(rows, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    corpus = TESTS / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in DAMAGED.items():
        (corpus / f"{name}.gguf").write_bytes(data)
    write_sound_file(TESTS / "fixtures/pypi.gguf")


if __name__ == "__main__":
    main()
