"""Writes a GGUF file with random weights and a real model's shape, to compare the speed of runtimes; its text is noise.

    pip install gguf numpy
    python scripts/make_random_model.py OUT.gguf --shape llama-1b --type q4_k

Shapes: `llama-1b` (Llama 3.2 1B with an output matrix of its own, 1.5 billion weights), `moe-small` (Qwen3-MoE's graph,
1 billion, of which 4 of 32 experts work) and `gpt-oss-small` (gpt-oss's graph, 1 billion, 4 of 32 experts, window 128).
Matrices have the type asked for; with `mxfp4`, as in gpt-oss's own files, only the experts have, the others are Q8_0.
Norms, biases and routers are F32. Weights are normally distributed around 0 with the scale that keeps activations at 1.
The vocabulary is the 256 bytes, two merges, fillers that stand for nothing, and an end that is hardly ever drawn.
"""

import argparse
import dataclasses
import math

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


@dataclasses.dataclass
class Shape:
    arch: str
    layers: int
    hidden: int
    feed_forward: int  # of one expert, where there are experts
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    experts_used: int = 0


SHAPES = {
    "llama-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, 128256),
    "moe-small": Shape("qwen3moe", 16, 1024, 512, 16, 4, 128, 32768, 32, 4),
    "gpt-oss-small": Shape("gpt-oss", 12, 960, 960, 32, 4, 64, 32768, 32, 4),
}
TYPES = {"q4_0": Type.Q4_0, "q4_k": Type.Q4_K, "q8_0": Type.Q8_0, "bf16": Type.BF16, "mxfp4": Type.MXFP4}
POOL = 1 << 20  # different weights; larger matrices repeat them from another place


def q4_k(x):
    """Q4_K blocks of 8 runs of 32 values: plainly rounded between each run's ends, which is enough for a speed test."""
    x = x.reshape(-1, 8, 32)
    low = np.minimum(x.min(axis=2), 0)
    step = (x.max(axis=2) - low) / 15
    d, dmin = step.max(axis=1) / 63, -low.min(axis=1) / 63
    scale = np.round(step / d[:, None]).astype(np.uint8)
    minimum = np.round(-low / dmin[:, None]).astype(np.uint8)
    span = np.maximum(d[:, None] * scale, 1e-12)[:, :, None]
    q = np.clip(np.round((x + (dmin[:, None] * minimum)[:, :, None]) / span), 0, 15).astype(np.uint8)
    blocks = np.zeros((len(x), 144), np.uint8)
    blocks[:, 0:2] = d.astype("<f2").view(np.uint8).reshape(-1, 2)
    blocks[:, 2:4] = dmin.astype("<f2").view(np.uint8).reshape(-1, 2)
    # Six bits each: of runs 0..4 in the low bits of bytes 0..4 and 4..8, of runs 4..8 in what is left.
    blocks[:, 4:8] = scale[:, :4] | (scale[:, 4:] >> 4) << 6
    blocks[:, 8:12] = minimum[:, :4] | (minimum[:, 4:] >> 4) << 6
    blocks[:, 12:16] = (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4
    blocks[:, 16:] = (q[:, 0::2] | q[:, 1::2] << 4).reshape(-1, 128)
    return blocks.reshape(-1)


class Weights:
    """Endless random weights, quantised once for each type and scale."""

    def __init__(self):
        self.random = np.random.default_rng(1)
        self.normal = self.random.standard_normal(POOL, dtype=np.float32)
        self.pools = {}

    def bytes_of(self, shape, kind):
        """Matrix data; `shape` with the contiguous dimension last."""
        deviation = 1 / math.sqrt(shape[-1])
        key = (kind, shape[-1])
        if key not in self.pools:
            self.pools[key] = self.pool(kind, deviation).reshape(-1).view(np.uint8)
        pool = self.pools[key]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = math.prod(shape) // block * block_bytes
        start = int(self.random.integers(POOL // block)) * block_bytes
        return np.resize(np.roll(pool, -start), count)

    def pool(self, kind, deviation):
        values = self.normal * np.float32(deviation)
        return q4_k(values) if kind == Type.Q4_K else gguf.quants.quantize(values.reshape(-1, 256), kind)

    def vector(self, shape, around):
        return (around + 0.1 * self.random.standard_normal(shape)).astype(np.float32)


def tensors(s, kind):
    """(name, shape with the contiguous dimension last, type or the value that F32 numbers lie around)."""
    dense = Type.Q8_0 if kind == Type.MXFP4 else kind
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield "token_embd.weight", (s.vocab, s.hidden), dense
    yield "output_norm.weight", (s.hidden,), 1.0
    yield "output.weight", (s.vocab, s.hidden), dense
    for layer in range(s.layers):
        def named(name):
            return f"blk.{layer}.{name}"

        yield named("attn_norm.weight"), (s.hidden,), 1.0
        for name, rows, cols in [("q", q, s.hidden), ("k", kv, s.hidden), ("v", kv, s.hidden), ("output", s.hidden, q)]:
            yield named(f"attn_{name}.weight"), (rows, cols), dense
            if s.arch == "gpt-oss":
                yield named(f"attn_{name}.bias"), (rows,), 0.0
        if s.arch == "qwen3moe":
            yield named("attn_q_norm.weight"), (s.head_dim,), 1.0
            yield named("attn_k_norm.weight"), (s.head_dim,), 1.0
        if s.arch == "gpt-oss":
            yield named("attn_sinks.weight"), (s.heads,), 0.0
        yield named("post_attention_norm.weight" if s.arch == "gpt-oss" else "ffn_norm.weight"), (s.hidden,), 1.0
        ends = "_exps" if s.experts else ""
        front = (s.experts,) if s.experts else ()
        wide, narrow = s.feed_forward, s.hidden
        for name, rows, cols in [("gate", wide, narrow), ("up", wide, narrow), ("down", narrow, wide)]:
            yield named(f"ffn_{name}{ends}.weight"), (*front, rows, cols), kind
            if s.arch == "gpt-oss":
                yield named(f"ffn_{name}{ends}.bias"), (*front, rows), 0.0
        if s.experts:
            yield named("ffn_gate_inp.weight"), (s.experts, s.hidden), 0.0
        if s.arch == "gpt-oss":
            yield named("ffn_gate_inp.bias"), (s.experts,), 0.0


def metadata(writer, s, name):
    writer.add_name(name)
    writer.add_block_count(s.layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(s.hidden)
    writer.add_feed_forward_length(s.feed_forward)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_dimension_count(s.head_dim)
    writer.add_rope_freq_base(150000.0 if s.arch == "gpt-oss" else 500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s.vocab)
    if s.experts:
        writer.add_expert_count(s.experts)
        writer.add_expert_used_count(s.experts_used)
        writer.add_expert_feed_forward_length(s.feed_forward)
    if s.arch == "gpt-oss":
        writer.add_sliding_window(128)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(4096)


def byte_letters():
    """The letter that stands for each byte in GPT-2's vocabulary: itself where it prints, else the next one above 255."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(256) if byte not in prints]
    return [chr(byte if byte in prints else 256 + other.index(byte)) for byte in range(256)]


def vocabulary(writer, size, pre="llama-bpe"):
    letters = byte_letters()
    space = letters[ord(" ")]
    merged = ["th", f"{space}t"]
    tokens = letters + merged
    tokens += [f"{space}w{i}" for i in range(len(tokens), size - 1)] + ["<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (size - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t h", f"{space} t"])
    writer.add_eos_token_id(size - 1)
    writer.add_bos_token_id(size - 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")


def write(writer, entries, weights):
    """The file: what `writer` has, and tensors of the types or around the values that `entries` say."""
    for name, dims, what in entries:
        kind = what if isinstance(what, Type) else Type.F32
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if dims[-1] % block:
            raise SystemExit(f"{name}: rows of {dims[-1]} values are no whole blocks of {kind.name}")
        writer.add_tensor_info(name, dims, np.dtype(np.float32), math.prod(dims) // block * block_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, dims, what in entries:
        writer.write_tensor_data(weights.bytes_of(dims, what) if isinstance(what, Type) else weights.vector(dims, what))
    writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--type", choices=TYPES, required=True)
    options = parser.parse_args()
    shape, kind = SHAPES[options.shape], TYPES[options.type]
    if kind == Type.MXFP4 and not shape.experts:
        parser.error("mxfp4 is a type of experts")

    writer = gguf.GGUFWriter(options.out, shape.arch)
    metadata(writer, shape, f"random {options.shape} {options.type}")
    vocabulary(writer, shape.vocab)
    write(writer, list(tensors(shape, kind)), Weights())


if __name__ == "__main__":
    main()
