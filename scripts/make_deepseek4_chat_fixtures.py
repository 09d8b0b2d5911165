#!/usr/bin/env python3
"""Makes the fixtures of DeepSeek V4's chat encoding and tokenizer.

    python3 -m venv venv && venv/bin/pip install gguf llama-cpp-python
    venv/bin/python scripts/make_deepseek4_chat_fixtures.py GOLDEN.json MODEL.gguf

GOLDEN.json has conversations as the official encoding renders them ({"encode": [...], "parse": [...]}); by default that is
../shared/deepseek4/chat_golden.json. MODEL.gguf is any small model with this tokenizer; its vocabulary is copied. Writes to
crates/text/tests/fixtures/deepseek4:

    golden.json     the same conversations; the official words for tools and effort are replaced by those of WORDS
    vocab.gguf      the tokenizer's keys alone, without a chat template
    corpus.json     a part of the tokenizers' corpus
    tokenizer.bin   llama.cpp's ids for it, as make_tokenizer_fixtures.py describes them
"""

import json
import pathlib
import sys

import gguf

from make_tokenizer_fixtures import Model, corpus, fixture

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/deepseek4"
# In place of the official words: before the tools, after them, and behind BOS. The tests have them as a file of words.
WORDS = ["[Tools, in <｜DSML｜tool_calls> after </think>:\n", "\nend of tools]\n", "[Think a lot.]\n\n"]
BOS = "<｜begin▁of▁sentence｜>"


def official_words(conversations):
    """The official words, found around what is known of three conversations."""
    prompts = {c["name"]: c for c in conversations}
    tools = prompts["tools_first"]
    system = tools["messages"][0]["content"]
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools["tools"])
    head = tools["prompt"].removeprefix(BOS + system + "\n\n").split("<｜User｜>")[0]
    before, after = head.split(lines)
    effort = prompts["think_max"]
    text = effort["prompt"].removeprefix(BOS).split(effort["messages"][0]["content"])[0]
    return [before, after, text]


def main():
    golden, model = sys.argv[1:]
    data = json.loads(pathlib.Path(golden).read_text())
    official = official_words(data["encode"])
    for conversation in data["encode"]:
        for word, ours in zip(official, WORDS):
            conversation["prompt"] = conversation["prompt"].replace(word, ours)
    text = json.dumps(data, ensure_ascii=False, indent=1)
    assert not any(json.dumps(word, ensure_ascii=False)[1:-1] in text for word in official)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "golden.json").write_text(text + "\n")

    fields = gguf.GGUFReader(model).fields
    writer = gguf.GGUFWriter(OUT / "vocab.gguf", "deepseek4")
    for name in ["model", "pre"]:
        writer.add_string(f"tokenizer.ggml.{name}", fields[f"tokenizer.ggml.{name}"].contents())
    for name in ["tokens", "token_type", "merges"]:
        writer.add_array(f"tokenizer.ggml.{name}", fields[f"tokenizer.ggml.{name}"].contents())
    for name in ["bos_token_id", "eos_token_id", "padding_token_id"]:
        writer.add_uint32(f"tokenizer.ggml.{name}", fields[f"tokenizer.ggml.{name}"].contents())
    for name in ["add_bos_token", "add_eos_token"]:
        writer.add_bool(f"tokenizer.ggml.{name}", fields[f"tokenizer.ggml.{name}"].contents())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    special = ["<｜User｜>", "a<think>b</think>", "｜DSML｜", "<｜DSML｜tool_calls>", "<｜end▁of▁sentence｜>x", "<｜action｜>"]
    strings = corpus()[::12] + special
    (OUT / "corpus.json").write_text(json.dumps(strings, indent=0) + "\n")
    (OUT / "tokenizer.bin").write_bytes(fixture(Model(model), strings))


if __name__ == "__main__":
    main()
