#!/usr/bin/env python3
"""Reduces recorded requests of real clients to their structure, as fixtures for the server's tests.

    python3 scripts/reduce_captures.py FOLDER crates/server/tests/data/captures.json

FOLDER holds files {"client": …, "requests": [{"method", "path", "body"}]}. Of each client the requests that differ in
structure are kept: long texts are cut, schemas of tools become one small schema, and what repeats is left out.
"""

import json
import pathlib
import sys

LONGEST = 32


def reduce(value, key=None):
    if isinstance(value, str):
        if key in ("arguments", "definition", "input", "encrypted_content", "signature", "user_id"):
            return value
        return value if len(value) <= LONGEST else value[:LONGEST]
    if isinstance(value, list):
        return [reduce(item, key) for item in value]
    if isinstance(value, dict):
        if key in ("parameters", "input_schema"):
            return {"type": "object", "properties": {"a": {"type": "string"}}}
        if key in ("client_metadata",):
            return {}
        return {k: reduce(v, k) for k, v in value.items()}
    return value


def shape(value):
    """What tells two requests apart: kinds and keys, not texts."""
    if isinstance(value, list):
        # The number of items tells one turn of a session from the next.
        return [len(value), *sorted({json.dumps(shape(item), sort_keys=True) for item in value})]
    if isinstance(value, dict):
        return {k: (v if k in ("type", "role") else shape(v)) for k, v in value.items()}
    return type(value).__name__


def main():
    folder, target = map(pathlib.Path, sys.argv[1:])
    kept = []
    for file in sorted(folder.glob("*.json")):
        seen = set()
        for request in json.loads(file.read_text())["requests"]:
            if request.get("method") != "POST" or not isinstance(request.get("body"), dict):
                continue
            body = reduce(request["body"])
            mark = json.dumps([request["path"], shape(body)], sort_keys=True)
            if mark not in seen:
                seen.add(mark)
                kept.append({"client": file.stem, "path": request["path"], "body": body})
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(request, ensure_ascii=False, separators=(",", ":")) for request in kept)
    target.write_text(f"[\n{lines}\n]\n")
    print(len(kept), "requests,", target.stat().st_size, "bytes")


main()
