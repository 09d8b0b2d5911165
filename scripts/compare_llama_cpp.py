"""Speed of Andante beside llama.cpp: the same file, the same threads, alternating in one run; medians and ratios.

    python3 -m venv peer && peer/bin/pip install llama-cpp-python
    cargo build --release
    peer/bin/python scripts/compare_llama_cpp.py target/release/andante MODEL.gguf --threads 2 --rounds 5

llama.cpp is driven as its own llama-bench does it: one context, batches of 512, one token at a time for generation.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time

TESTS = [("pp", 512, 0), ("pp", 2048, 0), ("tg", 64, 0), ("tg", 64, 2048)]


def name(kind, count, depth):
    return f"{kind}{count}" + (f" @ d{depth}" if depth else "")


def llama_worker(path, threads, extra_buffers):
    import llama_cpp as lib

    silent = lib.llama_log_callback(lambda level, text, data: None)  # kept alive as long as the library may call it
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    choices = lib.llama_model_default_params()
    choices.use_extra_bufts = extra_buffers
    model = lib.llama_model_load_from_file(path.encode(), choices)
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 4096 + 512, 2048, 512
    params.n_threads = params.n_threads_batch = threads
    context = lib.llama_init_from_model(model, params)
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def feed(count, one_by_one, start):
        tokens = (ctypes.c_int32 * count)(*[((start + i) * 7919 + 1) % vocab for i in range(count)])
        step = 1 if one_by_one else 2048
        for first in range(0, count, step):
            part = (ctypes.c_int32 * min(step, count - first)).from_buffer(tokens, 4 * first)
            if lib.llama_decode(context, lib.llama_batch_get_one(part, len(part))) != 0:
                raise SystemExit("llama_decode failed")
        lib.llama_synchronize(context)

    rates = {}
    for kind, count, depth in TESTS:
        for repetition in range(2):  # the first warms up
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
            feed(depth, False, 0)
            start = time.perf_counter()
            feed(count, kind == "tg", depth)
            rates[name(kind, count, depth)] = count / (time.perf_counter() - start)
    print(json.dumps(rates))


def andante_round(binary, path, threads):
    rates = {}
    for depth in sorted({depth for _, _, depth in TESTS}):
        def counts(kind):
            return ",".join(str(c) for k, c, d in TESTS if k == kind and d == depth) or "0"

        command = [binary, "bench", "--model", path, "--threads", str(threads), "--json", "-r", "1"]
        command += ["-p", counts("pp"), "-n", counts("tg"), "-d", str(depth)]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            row = json.loads(line)
            rates[row["test"]] = row["tokens_per_s"][0]
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-extra-buffers", action="store_true",
                        help="llama.cpp without its re-laid-out weights (AMX, repacked): its AMX path of 0.3.36 crashes")
    options = parser.parse_args()
    ours, theirs = [], []
    for _ in range(options.rounds):
        extra = "0" if options.no_extra_buffers else "1"
        worker = [sys.executable, __file__, "--llama-worker", options.model, str(options.threads), extra]
        theirs.append(json.loads(subprocess.run(worker, check=True, capture_output=True, text=True).stdout))
        ours.append(andante_round(options.binary, options.model, options.threads))
    print("| test | andante tok/s | llama.cpp tok/s | ratio of medians | ratios by round |")
    print("| --- | ---: | ---: | ---: | --- |")
    for test in TESTS:
        key = name(*test)
        a, b = [r[key] for r in ours], [r[key] for r in theirs]
        rounds = " ".join(f"{x / y:.2f}" for x, y in zip(a, b))
        median_a, median_b = statistics.median(a), statistics.median(b)
        print(f"| {key} | {median_a:.1f} | {median_b:.1f} | {median_a / median_b:.2f} | {rounds} |")


if __name__ == "__main__":
    if sys.argv[1] == "--llama-worker":
        llama_worker(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    else:
        main()
