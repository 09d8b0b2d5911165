"""What clients see while a long prompt is processed: gaps between tokens, waiting times, and the long prompt's own delay.

    cargo build --release
    python3 scripts/measure_stalls.py target/release/andante --max-stall-ms 100 --long 5000 --rounds 3

Starts the server, streams two answers, sends a prompt of --long tokens and, half a second later, one of 60 tokens. Only
the standard library is used. A run in which the answers did not overlap the long prompt is void and says so.
"""

import argparse
import http.client
import json
import random
import re
import statistics
import subprocess
import threading
import time


class Stream(threading.Thread):
    """One streamed completion and the time at which each event came."""

    def __init__(self, address, prompt, max_tokens):
        super().__init__()
        self.address, self.prompt, self.max_tokens = address, prompt, max_tokens
        self.sent, self.times, self.stop, self.error = None, [], False, None

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        body = {"prompt": self.prompt, "max_tokens": self.max_tokens, "stream": True, "temperature": 0,
                "ignore_eos": True, "cache_prompt": False}
        self.sent = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            self.error = answer.read().decode()
            return
        while not self.stop:
            line = answer.readline()
            if not line or line.startswith(b"data: [DONE]"):
                break
            # Not parsed here: the client shares the server's cores, and its work would show as the server's.
            if line.startswith(b"data: "):
                if b'"error"' in line:
                    self.error = line.decode()
                    break
                if b'"finish_reason":null' in line:
                    self.times.append(time.perf_counter())
        connection.close()

    def first(self):
        return self.times[0] - self.sent

    def gaps(self, start, end):
        return [(b - a) * 1000 for a, b in zip(self.times, self.times[1:]) if b >= start and a <= end]


def ids(count, seed):
    choose = random.Random(seed)
    return [choose.randrange(1000, 40000) for _ in range(count)]


def finished(stream):
    stream.join()
    if stream.error:
        raise SystemExit(f"a request failed: {stream.error}")
    return stream


def round_of(address, options, number):
    alone = Stream(address, ids(options.long, 10 * number), 4)
    alone.start()
    finished(alone)
    victims = [Stream(address, ids(32, 10 * number + 1 + i), 3000) for i in range(2)]
    for victim in victims:
        victim.start()
    while any(len(victim.times) < 40 for victim in victims):
        if any(victim.error for victim in victims):
            raise SystemExit(victims[0].error or victims[1].error)
        time.sleep(0.01)
    long = Stream(address, ids(options.long, 10 * number + 5), 4)
    calm = statistics.median(victims[0].gaps(0, time.perf_counter()))
    long.start()
    time.sleep(0.5)
    short = Stream(address, ids(60, 10 * number + 6), 4)
    short.start()
    finished(short)
    finished(long)
    start, end = long.sent, long.times[0]
    gaps = [gap for victim in victims for gap in victim.gaps(start, end)]
    during = [sum(start <= t <= end for t in victim.times) for victim in victims]
    overlapped = all(count >= 3 for count in during) and all(victim.times[-1] > end for victim in victims)
    for victim in victims:
        victim.stop = True
        victim.join()
    steps = max(sum(short.sent <= t <= short.times[0] for t in victim.times) for victim in victims)
    return {
        "calm token gap ms": calm,
        "longest gap ms": max(gaps),
        "median gap ms": statistics.median(gaps),
        "tokens each victim got": min(during),
        "short prompt: steps to first token": steps,
        "short prompt: first token ms": short.first() * 1000,
        "long prompt: first token s": long.first(),
        "long prompt alone: first token s": alone.first(),
        "long prompt: slowdown": long.first() / alone.first(),
    }, overlapped


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-stall-ms", type=int, default=100)
    parser.add_argument("--long", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [options.binary, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads),
               "--max-stall-ms", str(options.max_stall_ms), "--sessions", "5", "--ctx", "8192"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = None
        for line in server.stdout:
            found = re.search(r"http://([\d.]+:\d+)", line)
            if found:
                address = found.group(1)
                break
        if not address:
            raise SystemExit("the server did not start")
        threading.Thread(target=server.stdout.read, daemon=True).start()
        rows = []
        for number in range(options.rounds):
            row, overlapped = round_of(address, options, number)
            if not overlapped:
                raise SystemExit("void: the answers ended before the long prompt was done")
            rows.append(row)
            print(json.dumps({key: round(value, 2) for key, value in row.items()}), flush=True)
        print("| measure | " + " | ".join(f"round {i + 1}" for i in range(len(rows))) + " |")
        print("| --- |" + " ---: |" * len(rows))
        for key in rows[0]:
            print(f"| {key} | " + " | ".join(f"{row[key]:.2f}" for row in rows) + " |")
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
