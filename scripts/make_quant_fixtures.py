"""Makes the fixtures of the block formats from the reference arithmetic of the PyPI package `gguf`.

Run:  pip install gguf numpy && python scripts/make_quant_fixtures.py
It writes crates/gguf/tests/fixtures/quant/: for every format `<fmt>.blocks` (random blocks) and `<fmt>.f32` (their elements), and
for the formats that the package can quantise, `<fmt>.quantized` (blocks of the values in `values.f32`). All little-endian.
It also writes the grids of the IQ formats into crates/gguf/src/quant/iq_grids.bin. Same seed, same bytes.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

CRATE = Path(__file__).resolve().parent.parent / "crates/gguf"
OUT = CRATE / "tests/fixtures/quant"

# Byte offsets of the f16 fields of a block: random bytes there would often be NaN, whose payload no arithmetic promises.
F16_FIELDS = {
    Type.F32: [],
    Type.F16: [0],
    Type.BF16: [],
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.IQ1_S: [0],
    Type.IQ1_M: [],
    Type.IQ2_XXS: [0],
    Type.IQ2_XS: [0],
    Type.IQ2_S: [0],
    Type.IQ3_XXS: [0],
    Type.IQ3_S: [0],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.MXFP4: [],
}
QUANTIZED = [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.MXFP4]
ELEMENTS = 1024
# In the order that quant/iq_grids.rs expects; IQ1_M has the grid of IQ1_S.
GRIDS = [Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS, Type.IQ3_S, Type.IQ1_S]


def random_blocks(rng, kind):
    block_len, block_bytes = GGML_QUANT_SIZES[kind]
    count = ELEMENTS // block_len
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    if kind in (Type.F32, Type.BF16):
        # The top byte alone decides: exponents of all ones need 0x7f or 0xff there.
        blocks[:, -1] = np.where(blocks[:, -1] & 0x7F == 0x7F, blocks[:, -1] & 0xBF, blocks[:, -1])
    if kind == Type.MXFP4:
        # Above that the largest elements overflow.
        blocks[:, 0] = np.minimum(blocks[:, 0], 250)
        blocks[:3, 0] = range(3)
    if kind == Type.IQ1_M:
        # The f16's topmost bits are those of the last byte.
        blocks[:, -1] = np.where(blocks[:, -1] & 0x70 == 0x70, blocks[:, -1] & 0xBF, blocks[:, -1])
    for field in F16_FIELDS[kind]:
        bits = rng.integers(0, 0x7C00, count, dtype=np.uint16) | rng.integers(0, 2, count, dtype=np.uint16) << 15
        blocks[:, field : field + 2] = bits.astype("<u2").view(np.uint8).reshape(count, 2)
    return blocks


def values(rng):
    """Blocks of 32 values of different kinds: common weights, outliers, one sign, constants, zeros, ties, tiny and large ones."""
    blocks = [rng.normal(0, 0.05, 32) for _ in range(8)]
    blocks += [rng.normal(0, 0.05, 32) * np.where(np.arange(32) == spot, 40, 1) for spot in (0, 15, 16, 31)]
    blocks += [abs(rng.normal(0, 1, 32)), -abs(rng.normal(0, 1, 32)) - 1, rng.uniform(-1e4, 1e4, 32)]
    blocks += [np.zeros(32), np.full(32, 0.7), np.full(32, -3.0)]
    blocks += [np.arange(32) - 16.0, np.arange(32) / 2 - 8, np.arange(32) * 0.5, rng.normal(0, 1e-6, 32)]
    return np.concatenate(blocks).astype("<f4")


def main():
    rng = np.random.default_rng(20240601)
    OUT.mkdir(parents=True, exist_ok=True)
    inputs = values(rng)
    (OUT / "values.f32").write_bytes(inputs.tobytes())
    grids = b"".join(bytes.fromhex(gguf.quants._type_traits[kind].grid_hex.decode()) for kind in GRIDS)
    (CRATE / "src/quant/iq_grids.bin").write_bytes(grids)
    for kind in F16_FIELDS:
        name = kind.name.lower()
        blocks = random_blocks(rng, kind)
        elements = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype("<f4")
        assert np.isfinite(elements).all(), kind
        (OUT / f"{name}.blocks").write_bytes(blocks.tobytes())
        (OUT / f"{name}.f32").write_bytes(elements.tobytes())
        if kind in QUANTIZED:
            quantized = gguf.quants.quantize(inputs.reshape(1, -1), kind)
            (OUT / f"{name}.quantized").write_bytes(quantized.tobytes())


if __name__ == "__main__":
    main()
