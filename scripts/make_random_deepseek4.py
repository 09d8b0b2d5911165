"""Writes a GGUF file of about 2 GB with random weights and DeepSeek V4 Flash's graph, to compare the speed of runtimes; its text is noise.

    pip install gguf numpy
    python scripts/make_random_deepseek4.py OUT.gguf

Hidden size, heads, ranks, and experts' width are half of Flash's, a quarter of its experts are there (6 work on each token, as
there), 12 layers with its pattern of compressors: 0, 0, 4, 128, 4, 128, ... Sizes of heads, window, indexer and number of streams are
Flash's. So are the parts of what a token reads: 46 % attention (Flash 51), 17 % experts (19), 15 % compressors and indexer (10),
11 % shared expert (12), 9 % output (6).

Types are those that ds4 asks for with its 2-bit mix: embedding, hyper-connections, router, compressors and indexer F16; attention,
shared expert and output Q8_0; experts IQ2_XXS (gate and up) and Q2_K (down); the rest F32. Matrices have the scale that keeps
activations at 1. The vocabulary is that of `make_random_model.py`, with the pre-tokenizer of DeepSeek V4.
"""

import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import make_random_model as plain

VOCAB, HIDDEN, LAYERS, STREAMS = 32768, 2048, 12, 4
HEADS, HEAD_DIM, ROTARY, Q_RANK, GROUPS, GROUP_RANK, WINDOW = 32, 512, 64, 512, 8, 512, 128
INDEX_HEADS, INDEX_DIM, TOP_K = 64, 128, 512
EXPERTS, CHOSEN, EXPERT_WIDTH, HASHED = 64, 6, 1024, 3
RATIOS = [0, 0] + [4, 128] * (LAYERS // 2 - 1)


class Weights(plain.Weights):
    """Those of `make_random_model.py`, and types that only have a reference for reading: random blocks, their scales to measure."""

    def bytes_of(self, shape, kind):
        if kind == Type.I32:
            # Each row a choice of experts, none of them twice.
            order = np.argsort(self.random.random((shape[0], EXPERTS)), axis=1)
            return np.ascontiguousarray(order[:, : shape[1]], np.int32)
        return super().bytes_of(shape, kind)

    def pool(self, kind, deviation):
        if kind not in (Type.IQ2_XXS, Type.Q2_K):
            return super().pool(kind, deviation)
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = self.random.integers(0, 256, (plain.POOL // block, block_bytes), np.uint8)
        # Of Q2_K, a minimum of one and a half times the scale makes values of mean 0.
        places = [(0, 1.0)] if kind == Type.IQ2_XXS else [(80, 1.0), (82, 1.5)]

        def scaled(scale):
            for at, factor in places:
                blocks[:, at : at + 2] = np.array([scale * factor], "<f2").view(np.uint8)
            return blocks

        unit = gguf.quants.dequantize(scaled(1.0), kind)
        return scaled(deviation / float(np.sqrt(np.mean(np.square(unit, dtype=np.float64)))))


def tensors():
    """(name, shape with the contiguous dimension last, type or the value that F32 numbers lie around)."""
    coefficients, wide = STREAMS * (2 + STREAMS), STREAMS * HIDDEN
    yield "token_embd.weight", (VOCAB, HIDDEN), Type.F16
    yield "output_norm.weight", (HIDDEN,), 1.0
    yield "output.weight", (VOCAB, HIDDEN), Type.Q8_0
    yield "output_hc_fn.weight", (STREAMS, wide), Type.F16
    yield "output_hc_base.weight", (STREAMS,), 0.0
    yield "output_hc_scale.weight", (1,), 1.0
    for layer, ratio in enumerate(RATIOS):
        for name, shape, what in layer_tensors(layer, ratio, coefficients, wide):
            yield f"blk.{layer}.{name}", shape, what


def layer_tensors(layer, ratio, coefficients, wide):
    low, q = GROUPS * GROUP_RANK, HEADS * HEAD_DIM
    for part in ["attn", "ffn"]:
        yield f"hc_{part}_fn.weight", (coefficients, wide), Type.F16
        yield f"hc_{part}_base.weight", (coefficients,), 0.0
        yield f"hc_{part}_scale.weight", (3,), 1.0
    yield "attn_norm.weight", (HIDDEN,), 1.0
    yield "attn_q_a.weight", (Q_RANK, HIDDEN), Type.Q8_0
    yield "attn_q_a_norm.weight", (Q_RANK,), 1.0
    yield "attn_q_b.weight", (q, Q_RANK), Type.Q8_0
    yield "attn_kv.weight", (HEAD_DIM, HIDDEN), Type.Q8_0
    yield "attn_kv_a_norm.weight", (HEAD_DIM,), 1.0
    yield "attn_sinks.weight", (HEADS,), 0.0
    yield "attn_output_a.weight", (low, q // GROUPS), Type.Q8_0
    yield "attn_output_b.weight", (HIDDEN, low), Type.Q8_0
    if ratio:
        yield from compressor("attn_compressor", ratio, HEAD_DIM)
    if ratio == 4:
        yield "indexer.attn_q_b.weight", (INDEX_HEADS * INDEX_DIM, Q_RANK), Type.F16
        yield "indexer.proj.weight", (INDEX_HEADS, HIDDEN), Type.F16
        yield from compressor("indexer_compressor", ratio, INDEX_DIM)
    yield "ffn_norm.weight", (HIDDEN,), 1.0
    yield "ffn_gate_inp.weight", (EXPERTS, HIDDEN), Type.F16
    if layer < HASHED:
        yield "ffn_gate_tid2eid.weight", (VOCAB, CHOSEN), Type.I32
    else:
        yield "exp_probs_b.bias", (EXPERTS,), 0.0
    for name, rows, cols in [("gate", EXPERT_WIDTH, HIDDEN), ("up", EXPERT_WIDTH, HIDDEN), ("down", HIDDEN, EXPERT_WIDTH)]:
        yield f"ffn_{name}_exps.weight", (EXPERTS, rows, cols), Type.Q2_K if name == "down" else Type.IQ2_XXS
        yield f"ffn_{name}_shexp.weight", (rows, cols), Type.Q8_0


def compressor(name, ratio, width):
    token = (2 if ratio == 4 else 1) * width
    yield f"{name}_kv.weight", (token, HIDDEN), Type.F16
    yield f"{name}_gate.weight", (token, HIDDEN), Type.F16
    yield f"{name}_ape.weight", (ratio, token), Type.F16
    yield f"{name}_norm.weight", (width,), 1.0


def metadata(writer):
    writer.add_name("random deepseek4 q2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(HIDDEN)
    writer.add_vocab_size(VOCAB)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(ROTARY)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(16.0)
    writer.add_rope_scaling_orig_ctx_len(65536)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(WINDOW)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(CHOSEN)
    writer.add_expert_feed_forward_length(EXPERT_WIDTH)
    counts = {
        "attention.q_lora_rank": Q_RANK,
        "attention.output_group_count": GROUPS,
        "attention.output_lora_rank": GROUP_RANK,
        "attention.indexer.head_count": INDEX_HEADS,
        "attention.indexer.key_length": INDEX_DIM,
        "attention.indexer.top_k": TOP_K,
        "embedding_length_out": STREAMS * HIDDEN,
        "expert_gating_func": 4,
        "expert_shared_count": 1,
        "hash_layer_count": HASHED,
        "hyper_connection.count": STREAMS,
        "hyper_connection.sinkhorn_iterations": 20,
    }
    floats = {
        "attention.compress_rope_freq_base": 160000.0,
        "expert_weights_scale": 1.5,
        "hyper_connection.epsilon": 1e-6,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
    }
    for key, value in counts.items():
        writer.add_uint32(f"deepseek4.{key}", value)
    for key, value in floats.items():
        writer.add_float32(f"deepseek4.{key}", value)
    writer.add_bool("deepseek4.expert_weights_norm", True)
    # One more than there are layers: the last is that of a layer that predicts further tokens.
    writer.add_array("deepseek4.attention.compress_ratios", [*RATIOS, 0])
    for kind in ["exp", "shexp"]:
        writer.add_array(f"deepseek4.swiglu_clamp_{kind}", [10.0] * LAYERS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    options = parser.parse_args()
    writer = gguf.GGUFWriter(options.out, "deepseek4")
    metadata(writer)
    plain.vocabulary(writer, VOCAB, "joyai-llm")
    plain.write(writer, list(tensors()), Weights())


if __name__ == "__main__":
    main()
