#!/usr/bin/env python3
"""Renders the template fixtures with Jinja2, set up as transformers' apply_chat_template sets it up.

    python3 -m venv venv && venv/bin/pip install jinja2
    venv/bin/python scripts/make_template_goldens.py

Reads crates/text/tests/fixtures/templates/*.jinja and conversations.json, writes golden.json: for each template and
conversation the text, or {"error": message} where the template raises.
"""

import json
import pathlib

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/templates"


class Generation(Extension):
    """Marks what the assistant wrote; prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def render(source, conversation):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    try:
        return env.from_string(source).render(
            messages=conversation["messages"],
            tools=conversation.get("tools"),
            documents=None,
            add_generation_prompt=conversation["add_generation_prompt"],
            bos_token="<s>",
            eos_token="</s>",
            **conversation.get("args", {}),
        )
    except (jinja2.exceptions.TemplateError, TypeError) as error:
        return {"error": str(error)}


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    golden = {
        path.stem: {name: render(path.read_text(), c) for name, c in conversations.items()}
        for path in sorted(HERE.glob("*.jinja"))
    }
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
