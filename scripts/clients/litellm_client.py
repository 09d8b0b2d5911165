"""LiteLLM, over its OpenAI-compatible and its Anthropic providers."""

import json

import litellm

from check import *

litellm.telemetry = False
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
OPENAI = dict(model=f"openai/{MODEL}", api_base=f"{BASE}/v1", api_key=KEY, num_retries=0)
ANTHROPIC = dict(model=f"anthropic/{MODEL}", api_base=BASE, api_key=KEY, num_retries=0, max_tokens=200)


def ask(text, **more):
    return litellm.completion(messages=[{"role": "user", "content": text}], **more)


def chat():
    for provider in (OPENAI, ANTHROPIC):
        equal(ask("Say hello", **provider).choices[0].message.content, HELLO)


def streaming():
    for provider in (OPENAI, ANTHROPIC):
        chunks = ask("Say hello", stream=True, **provider)
        equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), HELLO)


def tools():
    for provider in (OPENAI, ANTHROPIC):
        call = ask("What is the weather in Paris?", tools=TOOLS, **provider).choices[0].message.tool_calls[0]
        equal((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))


def json_schema():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for provider in (OPENAI, ANTHROPIC):
        answer = ask("Describe Ada", response_format=form, **provider).choices[0].message
        equal(json.loads(answer.content), ADA)


def reasoning():
    # LiteLLM does not know that this model thinks.
    thinking = dict(thinking={"type": "enabled", "budget_tokens": 1024}, allowed_openai_params=["thinking"])
    for provider in (OPENAI, ANTHROPIC | thinking | {"max_tokens": 2048}):
        answer = ask("Think hard", **provider).choices[0].message
        equal((answer.reasoning_content.strip(), answer.content.strip()), (THOUGHT, ANSWER))


def errors():
    for provider in (OPENAI, ANTHROPIC):
        try:
            ask("word " * 200_000, **provider)
        except litellm.ContextWindowExceededError:
            pass
        else:
            raise AssertionError("a prompt that does not fit was taken")


def cancellation():
    def leave():
        stream = ask("Go on", stream=True, **OPENAI)
        next(iter(stream))
        stream.completion_stream.close()

    is_cancelled_by(leave)


run([chat, streaming, tools, json_schema, reasoning, errors, cancellation])
