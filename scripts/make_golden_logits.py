"""Makes crates/cli/tests/golden/*.json: logits of real models as two builds of llama.cpp compute them.

    pip install llama-cpp-python gguf
    npm install @node-llama-cpp/linux-x64
    python scripts/make_golden_logits.py --smollm2 FILE.gguf --gemma3 FILE.gguf \\
        --second-build node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 --second-cpu haswell

The first build is llama-cpp-python's own library, compiled for the machine that runs this script; the second one is a prebuilt library
for another instruction set. Each model is computed twice: as it is (`quantized`), and with all weights, activations, keys and values in F32
(`dequantized`). The two builds multiply quantised weights by activations that are rounded to 8 bits, and what they
round differently grows from layer to layer: there they agree on probabilities to a few hundredths of a nat, and on the order of the ten highest
logits at few positions. In F32 they agree on nearly everything.

A row of a fixture is a position, whether the order of the ten highest logits is beyond doubt (both builds have it, and neighbours are
further apart than the builds differ at any position), the logarithm of the sum of all exponentials, and the highest logits with their ids, all of the first build.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).parent.parent
OUT = ROOT / "crates/cli/tests/golden"
STORED = 64
CONTEXT = 2048

CODE = """def primes(limit):
    sieve = [True] * (limit + 1)
    for n in range(2, int(limit ** 0.5) + 1):
        if sieve[n]:
            for multiple in range(n * n, limit + 1, n):
                sieve[multiple] = False
    return [n for n in range(2, limit + 1) if sieve[n]]


def test_primes():
    assert primes(10) == ["""

LANGUAGES = """English: Good morning, how are you?
French: Bonjour, comment allez-vous ?
German: Guten Morgen, wie geht es Ihnen?
Spanish: Buenos días, ¿cómo está usted?
Italian:"""

QUESTION = "Why is the sky blue? Answer in one short paragraph, for a child of ten."
CHAT = {
    "smollm2": "<|im_start|>user\n" + QUESTION + "<|im_end|>\n<|im_start|>assistant\n",
    "gemma3": "<start_of_turn>user\n" + QUESTION + "<end_of_turn>\n<start_of_turn>model\n",
}


def prompts(model, tokenize):
    """Token ids of the prompts, the longest of 1,500."""
    story = (ROOT / "scripts/golden_prompt.txt").read_text()
    texts = ["The", "The capital of France is", CHAT[model], LANGUAGES, CODE, story[3000:4500], story + story]
    ids = [tokenize(text)[:1500] for text in texts]
    ids[0] = ids[0][:1]
    return ids


def positions(count):
    """Every position of a short prompt, 24 of a long one."""
    if count <= 24:
        return list(range(count))
    return sorted({round(i * (count - 1) / 23) for i in range(24)})


def open_build(folder, cpu):
    """The functions of libllama: llama-cpp-python's own, or those of prebuilt libraries in `folder`."""
    import llama_cpp as structs

    if not folder:
        return structs, structs.llama_cpp._lib
    mode = os.RTLD_LOCAL | os.RTLD_DEEPBIND
    folder = Path(folder).resolve()
    llama = ctypes.CDLL(str(next(folder.glob("libllama.v*.so"))), mode=mode)
    ggml = ctypes.CDLL(str(next(folder.glob("libggml.v*.so"))), mode=mode)
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    assert ggml.ggml_backend_load(str(folder / f"libggml-cpu-{cpu}.so").encode())
    return structs, llama


def evaluate(path, model, folder, cpu, overrides, out):
    """Runs one build over the prompts of one model."""
    structs, lib = open_build(folder, cpu)
    # The structs by value are the same in both builds: the defaults that this prints are plausible for every field.
    for name, result, arguments in [
        ("llama_model_default_params", structs.llama_model_params, []),
        ("llama_context_default_params", structs.llama_context_params, []),
        ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, structs.llama_model_params]),
        ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, structs.llama_context_params]),
        ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
        ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
        ("llama_batch_init", structs.llama_batch, [ctypes.c_int32] * 3),
        ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, structs.llama_batch]),
        ("llama_get_memory", ctypes.c_void_p, [ctypes.c_void_p]),
        ("llama_memory_clear", None, [ctypes.c_void_p, ctypes.c_bool]),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
        ("llama_print_system_info", ctypes.c_char_p, []),
    ]:
        getattr(lib, name).restype, getattr(lib, name).argtypes = result, arguments
    lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32] + [
        ctypes.c_bool
    ] * 2

    lib.llama_backend_init()
    model_params = lib.llama_model_default_params()
    # The first build computes with plain kernels (repacked ones may use AMX, which some virtual machines announce but do
    # not run), the second one with repacked weights.
    model_params.use_extra_bufts = bool(folder)
    llama = lib.llama_model_load_from_file(path.encode(), model_params)
    vocab = lib.llama_model_get_vocab(llama)
    size = lib.llama_vocab_n_tokens(vocab)
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = CONTEXT
    params.n_threads = params.n_threads_batch = 1
    for key, value in json.loads(overrides).items():
        setattr(params, key, value)
    context = lib.llama_init_from_model(llama, params)
    assert context

    def tokenize(text):
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = lib.llama_tokenize(vocab, data, len(data), ids, len(ids), True, True)
        return list(ids[:count])

    results = {"system": lib.llama_print_system_info().decode()}
    for i, ids in enumerate(prompts(model, tokenize)):
        wanted = positions(len(ids))
        batch = lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for j, token in enumerate(ids):
            batch.token[j], batch.pos[j], batch.n_seq_id[j], batch.seq_id[j][0] = token, j, 1, 0
            batch.logits[j] = j in wanted
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        assert lib.llama_decode(context, batch) == 0
        rows = [np.ctypeslib.as_array(lib.llama_get_logits_ith(context, j), (size,)).copy() for j in wanted]
        results[f"tokens{i}"], results[f"logits{i}"] = np.array(ids), np.stack(rows)
    np.savez(out, **results)


def run_build(path, model, build, context):
    """The arrays of `evaluate`, from a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        out = f"{temporary}/logits.npz"
        command = [sys.executable, __file__, "--evaluate", path, model, *build, json.dumps(context), out]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return dict(np.load(out))


def log_sum_exp(row):
    row = row.astype(np.float64)
    return float(row.max() + np.log(np.exp(row - row.max()).sum()))


def divergence(p, q):
    """Kullback-Leibler divergence in nats of row q from row p, over p's highest tokens and the rest as one more."""
    top = np.argsort(-p, kind="stable")[:STORED]
    p, q = (np.exp(row[top].astype(np.float64) - log_sum_exp(row)) for row in (p, q))
    p, q = (np.append(row, max(1.0 - row.sum(), 1e-12)) for row in (p, q))
    return float((p * np.log(p / q)).sum())


def order(row):
    return np.argsort(-row, kind="stable")[:10].tolist()


def dequantized(path, out):
    """A copy of a model file with all weights in F32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(model, path, builds, context):
    """Runs both builds on a file; the first one's logits, and how far the second one is from them."""
    first, second = (run_build(path, model, build, context) for build in builds)
    prompts_out, divergences, differences, gaps = [], [], [], []
    for i in range(sum(key.startswith("tokens") for key in first)):
        tokens = first[f"tokens{i}"].tolist()
        assert tokens == second[f"tokens{i}"].tolist()
        rows = []
        for position, p, q in zip(positions(len(tokens)), first[f"logits{i}"], second[f"logits{i}"]):
            top = np.argsort(-p, kind="stable")[:STORED]
            divergences.append(divergence(p, q))
            differences.append(float(np.abs(p - q)[top[:11]].max()))
            gaps.append(float((p[top[:10]] - p[top[1:11]]).min()) if order(p) == order(q) else 0.0)
            logits = [float(str(x)) for x in p[top]]
            rows.append([position, round(log_sum_exp(p), 12), top.tolist(), logits])
        prompts_out.append({"tokens": tokens, "rows": rows})
    # The order at a position is beyond doubt when both builds have it and neighbours are further apart than the builds anywhere.
    ordered = iter(gap > max(differences) for gap in gaps)
    for row in (row for prompt in prompts_out for row in prompt["rows"]):
        row.insert(1, next(ordered))
    summary = {
        "builds": [str(first["system"]), str(second["system"])],
        "max_divergence": max(divergences),
        "median_divergence": float(np.median(divergences)),
        "max_difference": max(differences),
        "positions": len(gaps),
        "same_order": sum(gap > 0 for gap in gaps),
        "ordered_positions": sum(gap > max(differences) for gap in gaps),
    }
    print(model, json.dumps(summary, indent=1), flush=True)
    lines = ",\n".join(json.dumps(prompt, separators=(",", ":")) for prompt in prompts_out)
    return json.dumps(summary)[:-1] + ',"prompts":[\n' + lines + "\n]}"


def make(model, path, builds):
    quantized = compare(model, path, builds, {})
    with tempfile.TemporaryDirectory() as temporary:
        copy = f"{temporary}/{model}.gguf"
        dequantized(path, copy)
        exact = compare(model, copy, builds, {"type_k": 0, "type_v": 0, "flash_attn_type": 0})
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{model}.json").write_text('{"quantized":' + quantized + ',\n"dequantized":' + exact + "}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--evaluate":
        evaluate(*sys.argv[2:])
        sys.exit()
    arguments = argparse.ArgumentParser()
    for name in ("--smollm2", "--gemma3"):
        arguments.add_argument(name)
    for name in ("--second-build", "--second-cpu"):
        arguments.add_argument(name, required=True)
    arguments = arguments.parse_args()
    builds = [("", ""), (arguments.second_build, arguments.second_cpu)]
    for name in ("smollm2", "gemma3"):
        if path := getattr(arguments, name):
            make(name, path, builds)
