"""Drives llama.cpp or ik_llama.cpp through its Python package as `andante bench --json` drives Andante; prints JSON lines.

    pip install llama-cpp-python ik-llama-cpp-python
    python scripts/bench_peer.py speed llama_cpp MODEL.gguf --threads 2 -p 512,2048 -n 64 -b 1,4,16 -d 0
    python scripts/bench_peer.py memory ik_llama_cpp MODEL.gguf --threads 2
    python scripts/bench_peer.py first-token llama_cpp MODEL.gguf --threads 2

`speed` measures as llama-bench does: a new context for every test, batches of 512, one token of every sequence at a time for
generation, tokens that stand for nothing. `memory` loads, processes a prompt of 512 and generates 64, and prints the
process's peak, and the part of it that the interpreter and the library had before. `first-token` prints the time from a loaded interpreter to the first generated token of "hi".

`cargo xtask bench-peers` runs all this and the comparison with Andante.
"""

import argparse
import ctypes
import importlib
import json
import resource
import time

CHUNK = 512


class Peer:
    """One of two C libraries with nearly the same functions."""

    def __init__(self, binding, path, options):
        module = {"llama_cpp": "llama_cpp.llama_cpp", "ik_llama_cpp": "ik_llama_cpp._ctypes_api"}[binding]
        self.lib, self.is_ik, self.options = importlib.import_module(module), binding == "ik_llama_cpp", options
        self.interpreter_bytes = peak_bytes()
        self.silence()
        self.started = time.perf_counter()
        self.lib.llama_backend_init()
        choices = self.lib.llama_model_default_params()
        if self.is_ik:
            choices.repack_tensors = options.repack
        else:
            choices.use_extra_bufts = not options.no_extra_buffers
        self.model = self.lib.llama_model_load_from_file(path.encode(), choices)
        if not self.model:
            raise SystemExit(f"cannot load {path}")
        self.load_s = time.perf_counter() - self.started
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.vocab_size = self.lib.llama_vocab_n_tokens(self.vocab)
        self.context = None

    def silence(self):
        library = self.lib._lib
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.silent = kind(lambda level, text, data: None)  # kept alive as long as the library may call it
        library.llama_log_set.argtypes = [kind, ctypes.c_void_p]
        library.llama_log_set(self.silent, None)

    def open(self, sequences, length):
        """A context with room for so many sequences of `length` tokens."""
        self.close()
        params = self.lib.llama_context_default_params()
        params.n_ctx = sequences * (-(-length // 256) * 256)
        params.n_seq_max, params.n_batch, params.n_ubatch = sequences, 2048, CHUNK
        params.n_threads = params.n_threads_batch = self.options.threads
        if self.is_ik:
            # Faster with it, but several sequences of one token each trip an assertion in it (iqk_fa_templates.h).
            params.flash_attn = sequences == 1
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("cannot make a context")

    def close(self):
        if self.context:
            self.lib.llama_free(self.context)
        self.context = None

    def keep(self, length, sequences=1):
        """Drops what lies behind the first `length` tokens of every sequence."""
        library = self.lib._lib
        if self.is_ik:
            remove, memory = library.llama_kv_cache_seq_rm, self.context
        else:
            remove, memory = library.llama_memory_seq_rm, self.lib.llama_get_memory(self.context)
        remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        remove.restype = ctypes.c_bool
        if remove(memory, -1, length, -1):
            return
        # A model with running states cannot go back: it is begun anew.
        if not remove(memory, -1, 0, -1):
            raise SystemExit("cannot drop the sequences")
        for sequence in range(sequences):
            self.prompt(sequence, 0, length)

    def decode(self, rows):
        """One forward pass of (token, position, sequence, whether its logits are wanted)."""
        batch = self.lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if self.lib.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        self.lib.llama_batch_free(batch)
        self.lib._lib.llama_synchronize(ctypes.c_void_p(self.context))

    def token(self, sequence, position):
        """Any tokens do: speed does not depend on them."""
        return (position * 7919 + sequence * 104729 + 1) % self.vocab_size

    def prompt(self, sequence, start, end):
        for first in range(start, end, CHUNK):
            last = min(first + CHUNK, end)
            self.decode([(self.token(sequence, i), i, sequence, i + 1 == end) for i in range(first, last)])

    def generate(self, sequences, start, end):
        for position in range(start, end):
            self.decode([(self.token(s, position), position, s, True) for s in range(sequences)])

    def tokenize(self, text):
        buffer = (ctypes.c_int32 * 256)()
        subject = self.model if self.is_ik else self.vocab
        data = text.encode()
        count = self.lib.llama_tokenize(subject, data, len(data), buffer, len(buffer), True, True)
        return list(buffer[:count])


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def numbers(text):
    return [int(part) for part in text.split(",")]


def timed(action, repetitions, again):
    rates = []
    for _ in range(repetitions):
        again()
        start = time.perf_counter()
        action()
        rates.append(time.perf_counter() - start)
    return rates


def speed(peer, options):
    for depth in options.n_depth:
        for count in filter(None, options.n_prompt):
            peer.open(1, depth + count)
            peer.prompt(0, 0, depth)
            peer.prompt(0, depth, depth + min(count, CHUNK))  # warms up
            seconds = timed(lambda: peer.prompt(0, depth, depth + count), options.repetitions, lambda: peer.keep(depth))
            report(f"pp{count}", depth, count, seconds)
        for batch in options.batch:
            for count in filter(None, options.n_gen):
                peer.open(batch, depth + count)
                for sequence in range(batch):
                    peer.prompt(sequence, 0, depth)
                peer.generate(batch, depth, depth + min(count, 8))
                seconds = timed(lambda: peer.generate(batch, depth, depth + count), options.repetitions,
                                lambda: peer.keep(depth, batch))
                report(f"tg{count}" + (f" b{batch}" if batch > 1 else ""), depth, batch * count, seconds)


def report(test, depth, tokens, seconds):
    test += f" @ d{depth}" if depth else ""
    print(json.dumps({"test": test, "tokens_per_s": [tokens / s for s in seconds]}), flush=True)


def memory(peer, options):
    peer.open(1, options.ctx)
    peer.prompt(0, 0, 512)
    peer.generate(1, 512, 576)
    print(json.dumps({"peak_bytes": peak_bytes(), "interpreter_bytes": peer.interpreter_bytes, "load_s": peer.load_s}))


def first_token(peer, options):
    peer.open(1, options.ctx)
    tokens = peer.tokenize("hi")
    peer.decode([(token, i, 0, i + 1 == len(tokens)) for i, token in enumerate(tokens)])
    row = ctypes.cast(peer.lib.llama_get_logits_ith(peer.context, -1), ctypes.POINTER(ctypes.c_float))
    values = row[: peer.vocab_size]
    values.index(max(values))
    print(json.dumps({"seconds": time.perf_counter() - peer.started, "load_s": peer.load_s}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["speed", "memory", "first-token"])
    parser.add_argument("binding", choices=["llama_cpp", "ik_llama_cpp"])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=576)
    parser.add_argument("-p", "--n-prompt", type=numbers, default=[512])
    parser.add_argument("-n", "--n-gen", type=numbers, default=[64])
    parser.add_argument("-b", "--batch", type=numbers, default=[1])
    parser.add_argument("-d", "--n-depth", type=numbers, default=[0])
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("--no-extra-buffers", action="store_true", help="llama.cpp without its re-laid-out weights")
    parser.add_argument("--repack", action="store_true", help="ik_llama.cpp with re-laid-out weights")
    options = parser.parse_args()
    peer = Peer(options.binding, options.model, options)
    {"speed": speed, "memory": memory, "first-token": first_token}[options.what](peer, options)


if __name__ == "__main__":
    main()
