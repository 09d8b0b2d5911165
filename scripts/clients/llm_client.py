"""The command `llm`, set up as docs/clients.md says."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from check import *

home = pathlib.Path(tempfile.mkdtemp())
(home / "extra-openai-models.yaml").write_text(
    f"- {{model_id: local, model_name: {MODEL}, api_base: {BASE}/v1, supports_tools: true, supports_schema: true}}\n"
)
(home / "tools.py").write_text(
    'def get_weather(city: str) -> str:\n    """The weather."""\n    return "sunny"\n'
)


def llm(*args, text="", ok=True):
    program = pathlib.Path(sys.executable).with_name("llm")
    environment = os.environ | {"LLM_USER_PATH": str(home), "OPENAI_API_KEY": KEY}
    done = subprocess.run([program, *args], env=environment, capture_output=True, text=True, input=text)
    equal(done.returncode == 0, ok)
    return done.stdout.strip() if ok else done.stderr


def chat():
    equal(llm("-m", "local", "--no-stream", "Say hello"), HELLO)


def streaming():
    equal(llm("-m", "local", "Say hello"), HELLO)


def tools():
    equal(llm("-m", "local", "--functions", str(home / "tools.py"), "What is the weather in Paris?"), SUNNY)


def json_schema():
    equal(json.loads(llm("-m", "local", "--schema", json.dumps(PERSON), "Describe Ada")), ADA)


def errors():
    assert "maximum context length" in llm("-m", "local", text="word " * 200_000, ok=False)


run([chat, streaming, tools, json_schema, errors])
