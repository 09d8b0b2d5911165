#!/usr/bin/env python3
"""Logits of DeepSeek V4 models whose weights are formulas, by a reference in double precision.

The formulas are those of crates/model/src/deepseek4/tests/portable.rs, which builds the same files, byte for byte. Two models
are made for whole logits: `quantised`, its matrices in the formats of ds4's 2-bit files, each block out of the formula's bits, and `mtp`, in F32 with a
block that predicts one token further (tensors `mtp.0.*`). Of the plain model, `rounded` has logits with rows kept in few bits.

The reference is written for reading, not for speed: one pass over the whole prompt, no cache. Its source is
`models/deepseek_v4` of Hugging Face transformers; the last block is as in `src/models/deepseek4.cpp` of llama.cpp.

usage: make_deepseek4_fixtures.py [FOLDER]    needs numpy and gguf; without FOLDER into crates/model/src/deepseek4/tests
       make_deepseek4_fixtures.py FILE.gguf IDS.i32 OUT.f32    the logits of any file, [tokens, vocab]
"""

import hashlib
import math
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

LAYERS, HIDDEN, VOCAB, HEADS, HEAD_DIM, ROTARY, Q_RANK = 5, 256, 512, 4, 128, 64, 256
GROUPS, GROUP_RANK, EXPERTS, CHOSEN, WIDTH = 2, 128, 4, 2, 256
INDEX_HEADS, INDEX_WIDTH, TOP_K, WINDOW, STREAMS, HASH_LAYERS = 16, 128, 8, 32, 4, 1
RATIOS = [0, 4, 128, 4, 128]
MASK = (1 << 64) - 1


# The formula.

def words(name, count):
    """splitmix64 seeded with the FNV-1a hash of a name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


RULES = [("attn_sinks", 0.5, 1.5), ("exp_probs_b", 0.0, 0.5), ("_ape", 0.0, 0.9), ("_base", 0.0, 0.9), ("_scale", 1.0, 0.3), ("norm", 1.0, 0.25)]
GAINS = [("ffn_gate_inp", 1.5), ("ffn_gate", 1.5), ("ffn_up", 1.5), ("attn_output", 2.0), ("hc_", 1.0), ("output.weight", 2.0)]


def amplitude(name, columns):
    if name == "token_embd.weight":
        return math.sqrt(3.0)
    return next((gain for part, gain in GAINS if part in name), 1.0) * math.sqrt(3.0 / columns)


def floats(name, shape):
    """Values of a tensor, its rows first in `shape`."""
    units = (words(name, math.prod(shape)) >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
    mean, scale = next(((m, s) for part, m, s in RULES if part in name), (0.0, amplitude(name, shape[-1])))
    return (mean + scale * units).astype(np.float32).reshape(shape)


def half(value):
    return np.float16(np.float32(value)).tobytes()


def blocks(name, shape, kind):
    """Bytes of a quantised tensor: scales by its amplitude, all else the formula's bits."""
    size, count = amplitude(name, shape[-1]), math.prod(shape)
    if kind == T.Q8_0:
        codes = (words(name, count) >> np.uint64(56)).astype(np.uint8).reshape(-1, 32)
        head, tail = half(size / 127.0), b""
    elif kind == T.IQ2_XXS:
        codes = words(name, count // 32).view(np.uint8).reshape(-1, 64)
        head, tail = half(size / 72.0), b""
    else:
        codes = words(name, count // 256 * 10).view(np.uint8).reshape(-1, 80)
        head, tail = b"", half(size / 24.0) + half(size / 16.0)
    rows = b"".join(head + row.tobytes() + tail for row in codes)
    return np.frombuffer(rows, np.uint8).reshape(*shape[:-1], -1)


def kind_of(name, shape, quantised):
    if not quantised or len(shape) == 1:
        return T.F32
    if "_exps" in name:
        return T.Q2_K if "down" in name else T.IQ2_XXS
    if any(part in name for part in ("attn_q_a", "attn_q_b", "attn_kv", "attn_output", "_shexp")) and "indexer" not in name or name == "output.weight":
        return T.Q8_0
    return T.F16


def tensors(mtp):
    wide = STREAMS * HIDDEN
    yield "token_embd.weight", (VOCAB, HIDDEN)
    yield "output.weight", (VOCAB, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    yield "output_hc_fn.weight", (STREAMS, wide)
    yield "output_hc_base.weight", (STREAMS,)
    yield "output_hc_scale.weight", (1,)
    for layer, ratio in enumerate(RATIOS):
        yield from block(f"blk.{layer}.", ratio, layer < HASH_LAYERS)
    if mtp:
        yield from block("mtp.0.", 0, False)
        for name, shape in (("e_proj", (HIDDEN, HIDDEN)), ("h_proj", (HIDDEN, HIDDEN)), ("enorm", (HIDDEN,)), ("hnorm", (HIDDEN,)), ("norm", (HIDDEN,)),
                            ("hc_head_fn", (STREAMS, wide)), ("hc_head_base", (STREAMS,)), ("hc_head_scale", (1,))):
            yield f"mtp.0.{name}.weight", shape


def block(prefix, ratio, hashed):
    wide, low = STREAMS * HIDDEN, GROUPS * GROUP_RANK
    named = lambda name, *shape: (f"{prefix}{name}.weight", shape)
    yield from (named("attn_norm", HIDDEN), named("ffn_norm", HIDDEN), named("attn_sinks", HEADS), named("attn_q_a", Q_RANK, HIDDEN), named("attn_q_a_norm", Q_RANK))
    yield from (named("attn_q_b", HEADS * HEAD_DIM, Q_RANK), named("attn_kv", HEAD_DIM, HIDDEN), named("attn_kv_a_norm", HEAD_DIM))
    yield from (named("attn_output_a", low, HEADS * HEAD_DIM // GROUPS), named("attn_output_b", HIDDEN, low))
    for part in ("attn", "ffn"):
        yield from (named(f"hc_{part}_fn", 24, wide), named(f"hc_{part}_base", 24), named(f"hc_{part}_scale", 3))
    series = 2 if ratio == 4 else 1
    compressor = lambda name, width: (named(f"{name}_kv", series * width, HIDDEN), named(f"{name}_gate", series * width, HIDDEN), named(f"{name}_ape", ratio, series * width), named(f"{name}_norm", width))
    if ratio:
        yield from compressor("attn_compressor", HEAD_DIM)
    if ratio == 4:
        yield from (named("indexer.attn_q_b", INDEX_HEADS * INDEX_WIDTH, Q_RANK), named("indexer.proj", INDEX_HEADS, HIDDEN))
        yield from compressor("indexer_compressor", INDEX_WIDTH)
    yield named("ffn_gate_inp", EXPERTS, HIDDEN)
    yield named("ffn_gate_tid2eid", VOCAB, CHOSEN) if hashed else (f"{prefix}exp_probs_b.bias", (EXPERTS,))
    for name, rows, cols in (("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN), ("down", HIDDEN, WIDTH)):
        yield named(f"ffn_{name}_exps", EXPERTS, rows, cols)
        yield named(f"ffn_{name}_shexp", rows, cols)


def table(name):
    """Each token's experts: the stride is odd and their number a power of two, so they differ."""
    x = words(name, VOCAB)
    stride = np.uint64(2) * ((x >> np.uint64(32)) % np.uint64(EXPERTS // 2)) + np.uint64(1)
    with np.errstate(over="ignore"):
        return np.stack([(x + np.uint64(j) * stride) % np.uint64(EXPERTS) for j in range(CHOSEN)], 1).astype(np.int32)


def write(path, quantised=False, mtp=False):
    out = gguf.GGUFWriter(path, "deepseek4")
    key = lambda name: f"deepseek4.{name}"
    for name, value in {
        "block_count": LAYERS, "context_length": 16384, "embedding_length": HIDDEN, "vocab_size": VOCAB, "attention.head_count": HEADS, "attention.head_count_kv": 1,
        "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": ROTARY, "attention.q_lora_rank": Q_RANK, "attention.sliding_window": WINDOW,
        "expert_count": EXPERTS, "expert_used_count": CHOSEN, "expert_gating_func": 4, "expert_feed_forward_length": WIDTH, "expert_shared_count": 1, "hash_layer_count": HASH_LAYERS,
        "attention.indexer.head_count": INDEX_HEADS, "attention.indexer.key_length": INDEX_WIDTH, "attention.indexer.top_k": TOP_K, "attention.output_group_count": GROUPS,
        "attention.output_lora_rank": GROUP_RANK, "hyper_connection.count": STREAMS, "hyper_connection.sinkhorn_iterations": 20, "embedding_length_out": HIDDEN * STREAMS,
        "rope.scaling.original_context_length": 1024,
    }.items():
        out.add_uint32(key(name), value)
    for name, value in {
        "rope.freq_base": 10000.0, "rope.scaling.factor": 16.0, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0, "attention.layer_norm_rms_epsilon": 1e-6,
        "expert_weights_scale": 1.5, "attention.compress_rope_freq_base": 160000.0, "hyper_connection.epsilon": 1e-6,
    }.items():
        out.add_float32(key(name), value)
    out.add_string(key("rope.scaling.type"), "yarn")
    out.add_bool(key("expert_weights_norm"), True)
    out.add_array(key("swiglu_clamp_exp"), [2.0] * LAYERS)
    out.add_array(key("swiglu_clamp_shexp"), [2.0] * LAYERS)
    out.add_array(key("attention.compress_ratios"), RATIOS)
    out.add_string("tokenizer.ggml.model", "none")
    for name, shape in tensors(mtp):
        kind = kind_of(name, shape, quantised)
        if "tid2eid" in name:
            out.add_tensor(name, table(name))
        elif kind == T.F32:
            out.add_tensor(name, floats(name, shape))
        elif kind == T.F16:
            out.add_tensor(name, floats(name, shape).astype(np.float16))
        else:
            out.add_tensor(name, blocks(name, shape, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


# The reference.

def rms(x, weight=None, eps=1e-6):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def power_of_two(x):
    return 2.0 ** np.ceil(np.log2(x))


def nearest(x, fraction, least):
    """With so many bits behind the leading one, which counts as `2^least` at least; ties go to the even code."""
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 2.0**-100))), least)
    step = 2.0 ** (exponent - fraction)
    return np.round(x / step) * step


def few_bits(x, width, least, most, fraction, exponent):
    parts = x.reshape(*x.shape[:-1], -1, width)
    scale = power_of_two(np.maximum(np.abs(parts).max(-1, keepdims=True), least) / most)
    return (nearest(np.clip(parts / scale, -most, most), fraction, exponent) * scale).reshape(x.shape)


def e4m3(x, plain):
    """A key in 584 bytes of 512 values: e4m3, and bfloat16 for the values that turn."""
    turning = np.ascontiguousarray(x[..., plain:], np.float32).view(np.uint32).astype(np.uint64)
    turning = (turning + np.uint64(0x7FFF) + (turning >> np.uint64(16) & np.uint64(1))) & np.uint64(0xFFFF0000)
    turning = turning.astype(np.uint32).view(np.float32).astype(np.float64)
    return np.concatenate([few_bits(x[..., :plain], 64, 1e-4, 448.0, 3, -6), turning], -1)


def hadamard_e2m1(x):
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[-1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return few_bits(x @ matrix / math.sqrt(len(matrix)), 32, 6.0 * 2.0**-126, 6.0, 1, 0)


class Reference:
    def __init__(self, path, rounded=False):
        self.rounded = rounded
        reader = gguf.GGUFReader(path)
        self.weights = {}
        for tensor in reader.tensors:
            shape = [int(n) for n in tensor.shape][::-1]
            if tensor.tensor_type == T.I32:
                self.weights[tensor.name] = np.array(tensor.data).reshape(shape)
            else:
                self.weights[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float64)
        fields = reader.fields
        self.key = lambda name: fields[f"deepseek4.{name}"].contents()
        self.eps, self.hc_eps = float(self.key("attention.layer_norm_rms_epsilon")), float(self.key("hyper_connection.epsilon"))
        self.rotary, self.streams = self.key("rope.dimension_count"), self.key("hyper_connection.count")
        self.closest = {"rows": math.inf, "experts": math.inf}

    def __getitem__(self, name):
        return self.weights[name]

    def frequencies(self, compressed):
        """Radians per position of each pair; those of layers with compressed rows are stretched by YaRN."""
        base = float(self.key("attention.compress_rope_freq_base" if compressed else "rope.freq_base"))
        pairs = np.arange(self.rotary // 2)
        plain = base ** (-2.0 * pairs / self.rotary)
        if not compressed:
            return plain
        context = self.key("rope.scaling.original_context_length")
        at = lambda turns: self.rotary * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))
        low = max(math.floor(at(float(self.key("rope.scaling.yarn_beta_fast")))), 0)
        high = min(math.ceil(at(float(self.key("rope.scaling.yarn_beta_slow")))), self.rotary - 1)
        stretched = np.clip((pairs - low) / max(high - low, 0.001), 0.0, 1.0)
        return plain / float(self.key("rope.scaling.factor")) * stretched + plain * (1.0 - stretched)

    def rotate(self, x, positions, compressed, direction=1.0):
        """Turns the last values of each head, as pairs of neighbours. The first axis of `x` is the token's."""
        angles = positions[:, None] * self.frequencies(compressed)[None] * direction
        angles = angles.reshape(len(positions), *[1] * (x.ndim - 2), -1)
        cos, sin, start = np.cos(angles), np.sin(angles), x.shape[-1] - self.rotary
        a, b = x[..., start::2], x[..., start + 1::2]
        out = x.copy()
        out[..., start::2], out[..., start + 1::2] = a * cos - b * sin, a * sin + b * cos
        return out

    def coefficients(self, x, name):
        """What a block takes from and gives to the streams."""
        n, eps = self.streams, self.hc_eps
        mix = rms(x.reshape(len(x), -1), eps=self.eps) @ self[name + "_fn.weight"].T
        scale, base = self[name + "_scale.weight"], self[name + "_base.weight"]
        pre = sigmoid(mix[:, :n] * scale[0] + base[:n]) + eps
        if mix.shape[1] == n:
            return pre
        post = 2.0 * sigmoid(mix[:, n:2 * n] * scale[1] + base[n:2 * n])
        comb = softmax((mix[:, 2 * n:] * scale[2] + base[2 * n:]).reshape(-1, n, n)) + eps
        comb /= comb.sum(1, keepdims=True) + eps
        for _ in range(self.key("hyper_connection.sinkhorn_iterations") - 1):
            comb /= comb.sum(2, keepdims=True) + eps
            comb /= comb.sum(1, keepdims=True) + eps
        return pre, post, comb

    def compressed(self, x, name, width, ratio):
        """One row for every `ratio` tokens."""
        count = len(x) // ratio
        shape = (count, ratio, -1)
        kv = (x @ self[name + "_kv.weight"].T)[:count * ratio].reshape(shape)
        gate = (x @ self[name + "_gate.weight"].T)[:count * ratio].reshape(shape) + self[name + "_ape.weight"]
        if ratio == 4:
            # The first series is for the next window.
            before = lambda values, nothing: np.concatenate([np.full((1, ratio, width), nothing), values[:-1, :, :width]])
            kv = np.concatenate([before(kv, 0.0), kv[:, :, width:]], 1)
            gate = np.concatenate([before(gate, -math.inf), gate[:, :, width:]], 1)
        rows = rms((kv * softmax(gate, 1)).sum(1), self[name + "_norm.weight"], self.eps)
        return self.rotate(rows, np.arange(count) * ratio, True)

    def chosen(self, x, low, prefix, visible, positions):
        """Which compressed rows each token sees."""
        heads, width = self.key("attention.indexer.head_count"), self.key("attention.indexer.key_length")
        q = (low @ self[prefix + "indexer.attn_q_b.weight"].T).reshape(len(x), heads, width)
        q = self.rotate(q, positions, True)
        rows = self.compressed(x, prefix + "indexer_compressor", width, 4)
        if self.rounded:
            q, rows = hadamard_e2m1(q), hadamard_e2m1(rows)
        weights = x @ self[prefix + "indexer.proj.weight"].T / math.sqrt(heads * width)
        scores = (np.maximum(np.einsum("thd,rd->thr", q, rows), 0.0) * weights[..., None]).sum(1)
        scores = np.where(visible, scores, -math.inf)
        top = self.key("attention.indexer.top_k")
        if scores.shape[1] <= top:
            return visible
        order = np.argsort(-scores, 1, kind="stable")
        ordered = np.take_along_axis(scores, order, 1)
        full = np.isfinite(ordered[:, top])
        if full.any():
            self.closest["rows"] = min(self.closest["rows"], (ordered[full, top - 1] - ordered[full, top]).min())
        seen = np.zeros_like(visible)
        np.put_along_axis(seen, order[:, :top], True, 1)
        return seen & visible

    def attention(self, x, prefix, ratio):
        n, heads, width = len(x), self.key("attention.head_count"), self.key("attention.key_length")
        positions, named = np.arange(n), lambda name: self[f"{prefix}{name}.weight"]
        low = rms(x @ named("attn_q_a").T, named("attn_q_a_norm"), self.eps)
        q = rms((low @ named("attn_q_b").T).reshape(n, heads, width), eps=self.eps)
        q = self.rotate(q, positions, ratio > 0)
        keys = self.rotate(rms(x @ named("attn_kv").T, named("attn_kv_a_norm"), self.eps), positions, ratio > 0)
        back = positions[:, None] - positions[None]
        seen = (back >= 0) & (back < self.key("attention.sliding_window"))
        if ratio and n >= ratio:
            rows = self.compressed(x, prefix + "attn_compressor", width, ratio)
            visible = np.arange(len(rows))[None] < ((positions + 1) // ratio)[:, None]
            if ratio == 4:
                visible = self.chosen(x, low, prefix, visible, positions)
            keys, seen = np.concatenate([keys, rows]), np.concatenate([seen, visible], 1)
        if self.rounded:
            keys = e4m3(keys, width - self.rotary)
        scores = np.einsum("thd,kd->thk", q, keys) / math.sqrt(width)
        scores = np.where(seen[:, None], scores, -math.inf)
        sinks = np.broadcast_to(named("attn_sinks")[None, :, None], (n, heads, 1))
        shares = softmax(np.concatenate([scores, sinks], 2))[..., :-1]
        out = self.rotate(np.einsum("thk,kd->thd", shares, keys), positions, ratio > 0, -1.0)
        groups, rank = self.key("attention.output_group_count"), self.key("attention.output_lora_rank")
        out = np.einsum("tgi,gri->tgr", out.reshape(n, groups, -1), named("attn_output_a").reshape(groups, rank, -1))
        return out.reshape(n, -1) @ named("attn_output_b").T

    def gated(self, x, gate, up, down, limit):
        gate, up = np.minimum(x @ gate.T, limit), np.clip(x @ up.T, -limit, limit)
        return (gate * sigmoid(gate) * up) @ down.T

    def feed_forward(self, x, prefix, ids, limit):
        named = lambda name: self[f"{prefix}{name}.weight"]
        scores = np.sqrt(np.log1p(np.exp(x @ named("ffn_gate_inp").T)))
        chosen = self.key("expert_used_count")
        if prefix + "ffn_gate_tid2eid.weight" in self.weights:
            experts = named("ffn_gate_tid2eid")[ids]
        else:
            biased = scores + self[prefix + "exp_probs_b.bias"]
            experts = np.argsort(-biased, 1, kind="stable")[:, :chosen + 1]
            ordered = np.take_along_axis(biased, experts, 1)
            self.closest["experts"] = min(self.closest["experts"], (ordered[:, chosen - 1] - ordered[:, chosen]).min())
            experts = experts[:, :chosen]
        shares = np.take_along_axis(scores, experts, 1)
        shares = shares / shares.sum(1, keepdims=True) * float(self.key("expert_weights_scale"))
        out = self.gated(x, named("ffn_gate_shexp"), named("ffn_up_shexp"), named("ffn_down_shexp"), limit)
        for expert in range(self.key("expert_count")):
            rows, ranks = np.where(experts == expert)
            parts = [named(f"ffn_{part}_exps")[expert] for part in ("gate", "up", "down")]
            out[rows] += self.gated(x[rows], *parts, limit) * shares[rows, ranks, None]
        return out

    def layer(self, x, prefix, ratio, ids, limit):
        for part in ("attn", "ffn"):
            pre, post, comb = self.coefficients(x, f"{prefix}hc_{part}")
            taken = rms((pre[..., None] * x).sum(1), self[f"{prefix}{part}_norm.weight"], self.eps)
            y = self.attention(taken, prefix, ratio) if part == "attn" else self.feed_forward(taken, prefix, ids, limit)
            x = post[..., None] * y[:, None] + np.einsum("tij,tid->tjd", comb, x)
        return x

    def head(self, x, name, norm):
        taken = (self.coefficients(x, name)[..., None] * x).sum(1)
        return rms(taken, self[norm], self.eps) @ self["output.weight"].T

    def forward(self, ids):
        """Logits, and those of the token after the next where there is a block for them: of all tokens but the last."""
        embedding, limits = self["token_embd.weight"], self.key("swiglu_clamp_exp")
        x = np.repeat(embedding[ids][:, None], self.streams, 1)
        for index in range(self.key("block_count")):
            x = self.layer(x, f"blk.{index}.", self.key("attention.compress_ratios")[index], ids, limits[index])
        logits = self.head(x, "output_hc", "output_norm.weight")
        if "mtp.0.e_proj.weight" not in self.weights:
            return logits, None
        named = lambda name: self[f"mtp.0.{name}.weight"]
        token = rms(embedding[ids[1:]], named("enorm"), self.eps) @ named("e_proj").T
        x = token[:, None] + rms(x[:-1], named("hnorm"), self.eps) @ named("h_proj").T
        x = self.layer(x, "mtp.0.", 0, ids[1:], limits[-1])
        return logits, self.head(x, "mtp.0.hc_head", "mtp.0.norm.weight")


# Positions whose logits are kept: around multiples of 4, the window and the longest compressed row.
POSITIONS = [0, 1, 2, 3, 4, 7, 8, 30, 31, 32, 33, 63, 64, 67, 68, 126, 127, 128, 129, 130]


def fixture(folder, name, count, positions, part=0, rounded=False, **variant):
    ids = (words("ids", count) % np.uint64(VOCAB)).astype(np.int32)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.gguf"
        write(path, **variant)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        reference = Reference(path, rounded)
        logits = reference.forward(ids)[part]
    logits[positions].astype(np.float32).tofile(folder / f"logits_{name}.f32")
    print(name, "sha256", digest, "closest choices", reference.closest, "deviation", logits.std())


def main(arguments):
    if len(arguments) == 3:
        model, ids, out = arguments
        logits, _ = Reference(model).forward(np.fromfile(ids, np.int32))
        logits.astype(np.float32).tofile(out)
        return
    root = Path(__file__).resolve().parent.parent
    folder = Path(arguments[0]) if arguments else root / "crates/model/src/deepseek4/tests"
    fixture(folder, "quantised", 160, POSITIONS + [157, 158], quantised=True)
    fixture(folder, "mtp", 160, POSITIONS + [157, 158], part=1, mtp=True)
    fixture(folder, "rounded", 300, POSITIONS + [255, 256, 257, 298, 299], rounded=True)


if __name__ == "__main__":
    main(sys.argv[1:])
