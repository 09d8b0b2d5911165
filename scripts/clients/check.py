"""What the Python drivers share: each feature is a function; a line says how it went. `cargo xtask clients` runs them all:

    python DRIVER.py http://127.0.0.1:PORT
"""

import sys
import traceback

BASE = sys.argv[1]
MODEL = "scripted"
KEY = "none"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
HELLO = "Hello there!"
SUNNY = "It is sunny in Paris."
SUNNY_BOTH = "It is sunny in both."
ADA = {"name": "Ada", "age": 36}
THOUGHT = "Six times seven."
ANSWER = "Forty-two."


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def run(features):
    """Runs every feature; the program's status says whether all went well."""
    failed = False
    for feature in features:
        try:
            feature()
            print(f"ok {feature.__name__}", flush=True)
        except Exception:
            failed = True
            why = traceback.format_exc(limit=3).strip().replace("\n", "\n    ")
            print(f"FAIL {feature.__name__}: {why}", flush=True)
    sys.exit(failed)


def cancelled():
    """How many requests the server has seen their clients leave."""
    import urllib.request

    with urllib.request.urlopen(f"{BASE}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith('andante_requests_total{outcome="cancelled"}'):
                return float(line.split()[-1])
    raise AssertionError("no count of cancelled requests in /metrics")


def is_cancelled_by(leave):
    """Asks that `leave` makes the server forget a request, within some seconds."""
    import time

    before = cancelled()
    leave()
    for _ in range(100):
        if cancelled() > before:
            return
        time.sleep(0.05)
    raise AssertionError("the server went on for nobody")
