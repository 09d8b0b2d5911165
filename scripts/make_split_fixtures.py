#!/usr/bin/env python3
"""Cuts texts into words by the original pre-tokenizer patterns, lookahead included.

    python3 -m venv venv && venv/bin/pip install regex
    venv/bin/python scripts/make_split_fixtures.py

Reads crates/text/tests/fixtures/tokenizer/corpus.txt (made by make_tokenizer_fixtures.py), writes
crates/text/tests/fixtures/split.jsonl: name, text and the words' lengths in characters.
"""

import json
import pathlib

import regex

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures"

# From openai/gpt-2 encoder.py, and the tokenizer.json of Llama 3, Qwen 2, DeepSeek V3 and gpt-oss (o200k). Contractions in both cases
# are spelt out: (?i:'s) would also match the long s, which llama.cpp does not. The last is llama.cpp's own.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASED = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [rf"{CASED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"],
    "qwen2": [rf"{CASED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"],
    "gpt-4o": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?:{CASED})?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?:{CASED})?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}


def cut(pattern, text):
    pieces, done = [], 0
    for match in regex.finditer(pattern, text, flags=regex.V0):
        pieces += [text[done : match.start()], match.group()]
        done = match.end()
    return [piece for piece in pieces + [text[done:]] if piece]


def main():
    texts = [json.loads(line) for line in (FIXTURES / "tokenizer/corpus.txt").read_text().splitlines()]
    # Unassigned characters differ between Unicode versions; planes are compared with llama.cpp's ids instead.
    texts = [t for t in texts[15:55] + texts[700::18] if len(t) < 300 and max(map(ord, t), default=0) < 0x3100]
    with open(FIXTURES / "split.jsonl", "w") as out:
        for pre, patterns in PATTERNS.items():
            for text in texts:
                words = [text]
                for pattern in patterns:
                    words = [piece for word in words for piece in cut(pattern, word)]
                out.write(json.dumps({"pre": pre, "text": text, "words": list(map(len, words))}) + "\n")


if __name__ == "__main__":
    main()
