"""Makes crates/model/tests/tiny/*.json: tiny models of every architecture with the logits that transformers computes for them.

    pip install torch transformers numpy
    python scripts/make_tiny_models.py

A fixture holds a model's GGUF metadata, the names and shapes of its tensors, a prompt and F32 logits at some positions. The
weights are not stored: both this script and the Rust test compute them from the tensors' names (see `weight`), in the layout
that llama.cpp's converter would have written.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import transformers

OUT = Path(__file__).parent.parent / "crates/model/tests/tiny"
VOCAB = 96
TOKENS = 80
POSITIONS = [0, 1, 15, 16, 31, 32, 63, 79]


def words(name, count):
    """The first `count` outputs of splitmix64 seeded with the FNV-1a hash of `name`."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def weight(name, shape):
    """Values of a tensor, `shape` with the contiguous dimension first; every step is exact or rounded once, in F32."""
    unit = (words(name, math.prod(shape)) >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    if name.endswith("norm.weight"):
        values = np.float32(1) + np.float32(0.25) * unit
    elif name.endswith(".bias"):
        values = np.float32(0.5) * unit
    elif name == "token_embd.weight":
        values = unit
    else:
        # Sharp attention shows mistakes of position and window.
        gain = 12.0 if "attn_q." in name or "attn_k." in name else 3.0
        values = unit * np.float32(math.sqrt(gain / shape[0]))
    return values.reshape(shape[::-1])


# Names in transformers and in GGUF files; {} is the layer.
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.layers.{}.input_layernorm.weight": "blk.{}.attn_norm.weight",
    "model.layers.{}.self_attn.q_proj.weight": "blk.{}.attn_q.weight",
    "model.layers.{}.self_attn.k_proj.weight": "blk.{}.attn_k.weight",
    "model.layers.{}.self_attn.v_proj.weight": "blk.{}.attn_v.weight",
    "model.layers.{}.self_attn.o_proj.weight": "blk.{}.attn_output.weight",
    "model.layers.{}.self_attn.q_proj.bias": "blk.{}.attn_q.bias",
    "model.layers.{}.self_attn.k_proj.bias": "blk.{}.attn_k.bias",
    "model.layers.{}.self_attn.v_proj.bias": "blk.{}.attn_v.bias",
    "model.layers.{}.self_attn.o_proj.bias": "blk.{}.attn_output.bias",
    "model.layers.{}.self_attn.q_norm.weight": "blk.{}.attn_q_norm.weight",
    "model.layers.{}.self_attn.k_norm.weight": "blk.{}.attn_k_norm.weight",
    "model.layers.{}.post_attention_layernorm.weight": "blk.{}.ffn_norm.weight",
    "model.layers.{}.mlp.gate_proj.weight": "blk.{}.ffn_gate.weight",
    "model.layers.{}.mlp.up_proj.weight": "blk.{}.ffn_up.weight",
    "model.layers.{}.mlp.down_proj.weight": "blk.{}.ffn_down.weight",
    "model.layers.{}.mlp.gate.weight": "blk.{}.ffn_gate_inp.weight",
    "model.layers.{}.mlp.experts.gate_up_proj": ("blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"),
    "model.layers.{}.mlp.experts.down_proj": "blk.{}.ffn_down_exps.weight",
}
GPT_OSS_NAMES = NAMES | {
    "model.layers.{}.self_attn.sinks": "blk.{}.attn_sinks.weight",
    "model.layers.{}.post_attention_layernorm.weight": "blk.{}.post_attention_norm.weight",
    "model.layers.{}.mlp.router.weight": "blk.{}.ffn_gate_inp.weight",
    "model.layers.{}.mlp.router.bias": "blk.{}.ffn_gate_inp.bias",
    "model.layers.{}.mlp.experts.gate_up_proj_bias": ("blk.{}.ffn_gate_exps.bias", "blk.{}.ffn_up_exps.bias"),
    "model.layers.{}.mlp.experts.down_proj_bias": "blk.{}.ffn_down_exps.bias",
}
GEMMA_NAMES = NAMES | {
    "model.layers.{}.post_attention_layernorm.weight": "blk.{}.post_attention_norm.weight",
    "model.layers.{}.pre_feedforward_layernorm.weight": "blk.{}.ffn_norm.weight",
    "model.layers.{}.post_feedforward_layernorm.weight": "blk.{}.post_ffw_norm.weight",
}


ARCH_NAMES = {"gemma3": GEMMA_NAMES, "gpt-oss": GPT_OSS_NAMES}


def gguf_names(name, names):
    """The tensors that a parameter is stored as: one, or gate and up."""
    parts = name.split(".")
    layer = next((part for part in parts if part.isdigit()), "")
    found = names[".".join("{}" if part == layer else part for part in parts)]
    return [name.format(layer) for name in ([found] if isinstance(found, str) else found)]


def pieces(parameter, arch, count):
    """Views of a parameter, one for each of its `count` tensors, with the dimensions of a file."""
    if arch == "gpt-oss" and parameter.dim() == 3:
        parameter = parameter.transpose(1, 2)  # transformers keeps these as [experts, inputs, outputs]
    if count == 1:
        return [parameter]
    if arch == "gpt-oss":  # gate and up alternate
        return [parameter[:, 0::2], parameter[:, 1::2]]
    return parameter.chunk(2, dim=1)


def interleave_undone(values, heads):
    """The converter makes the two halves of each q and k head alternate; this is the way back."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def llama3_factors(config):
    """Divisors of the frequencies, as the converter writes them to rope_freqs.weight."""
    rope = config.rope_parameters
    original, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    factors = []
    for i in range(config.head_dim // 2):
        turns = original / (2 * math.pi * rope["rope_theta"] ** (2 * i / config.head_dim))
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(rope["factor"])
        else:
            smooth = (turns - low) / (high - low)
            factors.append(1.0 / ((1.0 - smooth) / rope["factor"] + smooth))
    return [float(np.float32(f)) for f in factors]


def make(name, arch, model_class, config, extra=None, values=None):
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = model_class(config).eval().float()
    names = ARCH_NAMES.get(arch, NAMES)
    tensors = {}
    for key, parameter in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stored = gguf_names(key, names)
        for gguf, piece in zip(stored, pieces(parameter.data, arch, len(stored)), strict=True):
            tensors[gguf] = list(piece.shape[::-1])
            data = weight(gguf, tensors[gguf])
            if arch in ("llama", "mistral3") and (".attn_q." in gguf or ".attn_k." in gguf):
                heads = config.num_attention_heads if ".attn_q." in gguf else config.num_key_value_heads
                data = interleave_undone(data, heads)
            if arch == "gemma3" and gguf.endswith("norm.weight"):
                data = data - np.float32(1)  # exact; transformers adds it back
            piece.copy_(torch.from_numpy(data))

    metadata = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        **(extra or {}),
    }
    metadata = {"general.architecture": arch, "general.name": name} | {f"{arch}.{k}": v for k, v in metadata.items()}

    tokens = [int(w % np.uint64(VOCAB)) for w in words(name, TOKENS)]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].float().numpy()
    fixture = {
        "metadata": metadata,
        "tensors": tensors,
        "values": values or {},
        "tokens": tokens,
        "positions": POSITIONS,
        "logits": [[float(str(x)) for x in logits[p]] for p in POSITIONS],
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in fixture.items()]
    (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(name, "rms of logits", float(np.sqrt((logits**2).mean())))


def common(**changes):
    return {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    } | changes


def llama():
    t = transformers
    config = t.LlamaConfig(**common(num_key_value_heads=4))
    make("llama2", "llama", t.LlamaForCausalLM, config, {"rope.dimension_count": 16})

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = t.LlamaConfig(**common(tie_word_embeddings=True, rope_parameters=rope))
    factors = {"rope_freqs.weight": llama3_factors(config)}
    make("llama3", "llama", t.LlamaForCausalLM, config, {"rope.freq_base": 500000.0}, factors)

    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    config = t.LlamaConfig(**common(attention_bias=True, rope_parameters=rope))
    extra = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    make("llama_bias_linear", "llama", t.LlamaForCausalLM, config, extra)


def mistral():
    t = transformers
    config = t.MistralConfig(**common(head_dim=32, sliding_window=24))
    extra = {"attention.key_length": 32, "attention.value_length": 32, "attention.sliding_window": 24}
    make("mistral_window", "llama", t.MistralForCausalLM, config, extra)

    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
    }
    config = t.MistralConfig(**common(sliding_window=None, rope_parameters=rope))
    extra = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_beta_fast": 16.0,
        "rope.scaling.yarn_beta_slow": 2.0,
        "rope.scaling.yarn_log_multiplier": 0.5,
    }
    make("mistral3_yarn", "mistral3", t.MistralForCausalLM, config, extra)


def qwen():
    t = transformers
    rope = {"rope_type": "default", "rope_theta": 1000000.0}
    config = t.Qwen2Config(**common(tie_word_embeddings=True, rope_parameters=rope))
    make("qwen2", "qwen2", t.Qwen2ForCausalLM, config, {"rope.freq_base": 1000000.0})

    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    config = t.Qwen2Config(**common(rope_parameters=rope))
    extra = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
    make("qwen2_yarn", "qwen2", t.Qwen2ForCausalLM, config, extra)

    config = t.Qwen3Config(**common(head_dim=32))
    make("qwen3", "qwen3", t.Qwen3ForCausalLM, config, {"attention.key_length": 32, "attention.value_length": 32})


def gemma():
    t = transformers
    rope = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    config = t.Gemma3TextConfig(
        **common(
            num_hidden_layers=7,
            num_key_value_heads=1,
            head_dim=32,
            query_pre_attn_scalar=32,
            sliding_window=16,
            rms_norm_eps=1e-6,
            rope_parameters=rope,
        )
    )
    assert config.layer_types.count("full_attention") == 1
    extra = {
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.sliding_window": 16,
        "rope.freq_base": 1000000.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    }
    make("gemma3", "gemma3", t.Gemma3ForCausalLM, config, extra)


def experts():
    t = transformers
    # Rows of 256 values, so that the K formats have whole blocks.
    changes = {"hidden_size": 256, "head_dim": 64, "num_hidden_layers": 2}
    config = t.Qwen3MoeConfig(
        **common(**changes, moe_intermediate_size=256, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True)
    )
    extra = {"attention.key_length": 64, "attention.value_length": 64}
    extra |= {"expert_count": 7, "expert_used_count": 3, "expert_feed_forward_length": 256}
    make("qwen3moe", "qwen3moe", t.Qwen3MoeForCausalLM, config, extra)

    config = t.MixtralConfig(**common(num_local_experts=5, num_experts_per_tok=2, sliding_window=None))
    extra = {"expert_count": 5, "expert_used_count": 2}
    make("mixtral", "llama", t.MixtralForCausalLM, config, extra)

    rope = {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    }
    config = t.GptOssConfig(
        **common(
            num_hidden_layers=4,
            head_dim=32,
            num_local_experts=6,
            num_experts_per_tok=4,
            sliding_window=24,
            rope_parameters=rope,
        )
    )
    assert config.layer_types == ["sliding_attention", "full_attention"] * 2
    extra = {
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.sliding_window": 24,
        "expert_count": 6,
        "expert_used_count": 4,
        "expert_feed_forward_length": 96,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
    }
    make("gpt_oss", "gpt-oss", t.GptOssForCausalLM, config, extra)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for family in (llama, mistral, qwen, gemma, experts):
        family()
