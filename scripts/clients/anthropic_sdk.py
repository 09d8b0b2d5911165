"""anthropic-python: messages and count_tokens."""

import json

import anthropic
from anthropic import Anthropic

from check import *

client = Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
TOOLS = [{"name": "get_weather", "input_schema": WEATHER}]


def ask(text, **more):
    return dict(model=MODEL, max_tokens=200, messages=[{"role": "user", "content": text}]) | more


def chat():
    answer = client.messages.create(**ask("Say hello", system="Be kind."))
    equal(answer.content[0].text, HELLO)
    equal(answer.stop_reason, "end_turn")
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 0


def streaming():
    with client.messages.stream(**ask("Say hello")) as stream:
        equal("".join(stream.text_stream), HELLO)
        equal(stream.get_final_message().stop_reason, "end_turn")


def tools():
    question = ask("What is the weather in Paris?", tools=TOOLS)
    answer = client.messages.create(**question)
    equal(answer.stop_reason, "tool_use")
    call = next(block for block in answer.content if block.type == "tool_use")
    equal((call.name, call.input), ("get_weather", {"city": "Paris"}))
    question["messages"] += [
        {"role": "assistant", "content": answer.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}],
        },
    ]
    equal(client.messages.create(**question).content[0].text, SUNNY)


def tools_streaming():
    with client.messages.stream(**ask("Compare the weather in Paris and Rome.", tools=TOOLS)) as stream:
        answer = stream.get_final_message()
    equal([block.type for block in answer.content], ["text", "tool_use", "tool_use"])
    equal([block.input["city"] for block in answer.content[1:]], ["Paris", "Rome"])


def json_schema():
    form = {"format": {"type": "json_schema", "schema": PERSON}}
    answer = client.messages.create(**ask("Describe Ada", extra_body={"output_config": form}))
    equal(json.loads(answer.content[0].text), ADA)


def reasoning():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    question = ask("Think hard", thinking=thinking, max_tokens=2048)
    with client.messages.stream(**question) as stream:
        answer = stream.get_final_message()
    thought, text = answer.content
    equal((thought.thinking.strip(), text.text.strip()), (THOUGHT, ANSWER))
    assert thought.signature
    question["messages"] += [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": "Say hello"},
    ]
    equal(client.messages.create(**question).content[0].text, HELLO)


def counting():
    question = ask("Say hello")
    del question["max_tokens"]
    assert client.messages.count_tokens(**question).input_tokens > 0


def errors():
    try:
        client.messages.create(**ask("Say hello", extra_body={"temperature": "warm"}))
    except anthropic.BadRequestError as error:
        equal(error.body["error"]["type"], "invalid_request_error")
    else:
        raise AssertionError("a warm temperature was taken")
    try:
        client.messages.create(**ask("word " * 200_000))
    except anthropic.BadRequestError as error:
        assert error.body["error"]["message"].startswith("prompt is too long: "), error.body
    else:
        raise AssertionError("a prompt that does not fit was taken")


def cancellation():
    def leave():
        stream = client.messages.create(**ask("Go on", stream=True, max_tokens=20_000))
        next(iter(stream))
        stream.close()

    is_cancelled_by(leave)


run([chat, streaming, tools, tools_streaming, json_schema, reasoning, counting, errors, cancellation])
