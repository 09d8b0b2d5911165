"""All the Python clients on a real model, too small to be relied on: its greedy answer must be the same whoever asks and however,
and what a form forces must be so. `cargo xtask clients --real` runs it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import anthropic
import litellm
import openai
from langchain_openai import ChatOpenAI

from check import *

litellm.telemetry = False
litellm.suppress_debug_info = True
ASK = "Name three colours of the rainbow."
MOST = 16
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "item", "schema": ITEM, "strict": True}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": PLACE}}]
GREEDY = dict(model=MODEL, temperature=0)
OPENAI = dict(model=f"openai/{MODEL}", api_base=f"{BASE}/v1", api_key=KEY, temperature=0)
ANTHROPIC = dict(model=f"anthropic/{MODEL}", api_base=BASE, api_key=KEY, temperature=0)

client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
messages = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0).messages
chain = ChatOpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0, max_tokens=MOST, **GREEDY)


def user(text=ASK):
    return [{"role": "user", "content": text}]


def openai_chat(**more):
    return client.chat.completions.create(**GREEDY | {"messages": user(), "max_tokens": MOST} | more)


def claude(ask=messages.create, text=ASK, **more):
    """This SDK has no argument for the temperature."""
    return ask(**{"model": MODEL, "messages": user(text), "max_tokens": MOST, "extra_body": {"temperature": 0}} | more)


def is_item(text):
    item = json.loads(text)
    equal(sorted(item), ["name", "size"])
    assert len(item["name"]) <= 12 and item["size"] in ("small", "large"), item


def is_place(name, arguments):
    equal((name, list(arguments)), ("get_weather", ["city"]))
    assert arguments["city"] in ("Paris", "Rome"), arguments


TEXT = openai_chat().choices[0].message.content


def chat():
    assert TEXT.strip(), "the answer is empty"
    equal(openai_chat().choices[0].finish_reason, "length")
    answer = client.responses.create(input=ASK, max_output_tokens=MOST, **GREEDY)
    equal((answer.status, answer.output_text), ("incomplete", TEXT))
    answer = claude()
    equal((answer.stop_reason, answer.content[0].text), ("max_tokens", TEXT))
    for provider in (OPENAI, ANTHROPIC):
        equal(litellm.completion(messages=user(), max_tokens=MOST, **provider).choices[0].message.content, TEXT)
    equal(chain.invoke(ASK).content, TEXT)


def streaming():
    chunks = list(openai_chat(stream=True, stream_options={"include_usage": True}))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), TEXT)
    equal(chunks[-1].usage.completion_tokens, MOST)
    events = list(client.responses.create(input=ASK, max_output_tokens=MOST, stream=True, **GREEDY))
    equal("".join(event.delta for event in events if event.type == "response.output_text.delta"), TEXT)
    with claude(messages.stream) as stream:
        equal("".join(stream.text_stream), TEXT)
    for provider in (OPENAI, ANTHROPIC):
        chunks = litellm.completion(messages=user(), max_tokens=MOST, stream=True, **provider)
        equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), TEXT)
    equal("".join(chunk.content for chunk in chain.stream(ASK)), TEXT)


def command():
    home = pathlib.Path(tempfile.mkdtemp())
    (home / "extra-openai-models.yaml").write_text(f"- {{model_id: local, model_name: {MODEL}, api_base: {BASE}/v1}}\n")
    program = pathlib.Path(sys.executable).with_name("llm")
    done = subprocess.run(
        [program, "-m", "local", "-o", "temperature", "0", "-o", "max_tokens", str(MOST), ASK],
        env=os.environ | {"LLM_USER_PATH": str(home), "OPENAI_API_KEY": KEY}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    equal(done.stdout.strip(), TEXT.strip())


def schema():
    is_item(openai_chat(response_format=FORM, max_tokens=100).choices[0].message.content)
    form = {"format": {"type": "json_schema", "name": "item", "schema": ITEM, "strict": True}}
    is_item(client.responses.create(input=ASK, text=form, max_output_tokens=100, **GREEDY).output_text)
    form = {"format": {"type": "json_schema", "schema": ITEM}}
    is_item(claude(extra_body={"output_config": form, "temperature": 0}, max_tokens=100).content[0].text)
    is_item(litellm.completion(messages=user(), response_format=FORM, **OPENAI).choices[0].message.content)
    shaped = chain.with_structured_output(ITEM | {"title": "item", "description": "Anything."}, method="json_schema")
    is_item(json.dumps(shaped.invoke(ASK, max_tokens=100)))


def forced_tools():
    asked = dict(tools=TOOLS, tool_choice="required", max_tokens=200)
    answer = openai_chat(**asked).choices[0]
    equal(answer.finish_reason, "tool_calls")
    for call in answer.message.tool_calls:
        is_place(call.function.name, json.loads(call.function.arguments))
    with client.chat.completions.stream(messages=user(), **GREEDY | asked) as stream:
        streamed = stream.get_final_completion().choices[0].message
    equal([call.function.arguments for call in streamed.tool_calls], [call.function.arguments for call in answer.message.tool_calls])
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in answer.message.tool_calls]
    turn = client.chat.completions.create(messages=[*user(), answer.message, *results], tools=TOOLS, max_tokens=MOST, **GREEDY)
    assert turn.choices[0].message.content.strip()
    tools = [{"name": "get_weather", "input_schema": PLACE}]
    answer = claude(tools=tools, tool_choice={"type": "any"}, max_tokens=200)
    equal(answer.stop_reason, "tool_use")
    is_place(answer.content[-1].name, answer.content[-1].input)
    flat = [{"type": "function", "name": "get_weather", "parameters": PLACE, "strict": True}]
    answer = client.responses.create(input=ASK, tools=flat, tool_choice="required", max_output_tokens=200, **GREEDY)
    call = answer.output[-1]
    is_place(call.name, json.loads(call.arguments))
    call = chain.bind_tools(TOOLS, tool_choice="any").invoke(ASK, max_tokens=200).tool_calls[0]
    is_place(call["name"], call["args"])


def no_reasoning():
    """The model has none: nobody is shown any."""
    message = openai_chat(reasoning_effort="high").choices[0].message
    assert not hasattr(message, "reasoning_content"), message
    answer = client.responses.create(input=ASK, max_output_tokens=MOST, reasoning={"effort": "high"}, **GREEDY)
    equal([item.type for item in answer.output], ["message"])
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = claude(max_tokens=1040, thinking=thinking)
    equal([block.type for block in answer.content], ["text"])


def errors():
    for ask, kind in [
        (lambda: openai_chat(temperature="warm"), openai.BadRequestError),
        (lambda: openai_chat(messages=user("word " * 20_000)), openai.BadRequestError),
        (lambda: claude(text="word " * 20_000), anthropic.BadRequestError),
        (lambda: litellm.completion(messages=user("word " * 20_000), **OPENAI), litellm.ContextWindowExceededError),
    ]:
        try:
            ask()
        except kind:
            continue
        raise AssertionError("this was taken")


def cancellation():
    for stream in (
        lambda: client.chat.completions.create(messages=user(), stream=True, extra_body={"ignore_eos": True}, **GREEDY),
        lambda: claude(max_tokens=8000, stream=True, extra_body={"ignore_eos": True}),
    ):

        def leave():
            answer = stream()
            next(iter(answer))
            answer.close()

        is_cancelled_by(leave)


run([chat, streaming, command, schema, forced_tools, no_reasoning, errors, cancellation])
