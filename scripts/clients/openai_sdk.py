"""openai-python: chat completions, completions and Responses."""

import json

import openai
from openai import OpenAI

from check import *

client = OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
chat = client.chat.completions
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
FLAT_TOOLS = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]


def user(text):
    return [{"role": "user", "content": text}]


def chat_whole():
    answer = chat.create(model=MODEL, messages=user("Say hello"))
    equal(answer.choices[0].message.content, HELLO)
    equal(answer.choices[0].finish_reason, "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def chat_stream():
    options = {"include_usage": True}
    chunks = list(chat.create(model=MODEL, messages=user("Say hello"), stream=True, stream_options=options))
    equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), HELLO)
    equal([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
    assert chunks[-1].usage.completion_tokens > 0
    equal(len({c.id for c in chunks}), 1)


def chat_tools():
    messages = user("What is the weather in Paris?")
    answer = chat.create(model=MODEL, messages=messages, tools=TOOLS)
    equal(answer.choices[0].finish_reason, "tool_calls")
    call = answer.choices[0].message.tool_calls[0]
    equal((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
    messages += [
        answer.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    equal(chat.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message.content, SUNNY)


def chat_tools_stream():
    messages = user("Compare the weather in Paris and Rome.")
    with chat.stream(model=MODEL, messages=messages, tools=TOOLS) as stream:
        answer = stream.get_final_completion().choices[0]
    equal(answer.finish_reason, "tool_calls")
    equal(answer.message.content, "Looking.")
    calls = answer.message.tool_calls
    equal([json.loads(call.function.arguments)["city"] for call in calls], ["Paris", "Rome"])
    equal(len({call.id for call in calls}), 2)


def chat_tool_choice():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = chat.create(
        model=MODEL, messages=user("What is the weather in Paris?"), tools=TOOLS, tool_choice=choice
    )
    equal(answer.choices[0].message.tool_calls[0].function.name, "get_weather")
    answer = chat.create(model=MODEL, messages=user("Say hello"), tools=TOOLS, tool_choice="none")
    equal(answer.choices[0].message.content, HELLO)


def chat_schema():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    answer = chat.create(model=MODEL, messages=user("Describe Ada"), response_format=form)
    equal(json.loads(answer.choices[0].message.content), ADA)


def chat_reasoning():
    answer = chat.create(model=MODEL, messages=user("Think hard")).choices[0].message
    equal((answer.reasoning_content.strip(), answer.content.strip()), (THOUGHT, ANSWER))
    chunks = chat.create(model=MODEL, messages=user("Think hard"), stream=True)
    deltas = [c.choices[0].delta for c in chunks]
    equal("".join(getattr(d, "reasoning_content", None) or "" for d in deltas).strip(), THOUGHT)
    equal("".join(d.content or "" for d in deltas).strip(), ANSWER)


def completions():
    answer = client.completions.create(model=MODEL, prompt="one", max_tokens=4)
    equal(answer.choices[0].finish_reason, "length")


def responses_whole():
    answer = client.responses.create(model=MODEL, input="Say hello")
    equal((answer.status, answer.output_text), ("completed", HELLO))
    assert answer.usage.input_tokens > 0
    again = client.responses.retrieve(answer.id)
    equal(again.output_text, HELLO)
    client.responses.delete(answer.id)


def responses_stream():
    with client.responses.stream(model=MODEL, input="Say hello") as stream:
        kinds = [event.type for event in stream]
        equal(stream.get_final_response().output_text, HELLO)
    equal((kinds[0], kinds[-1]), ("response.created", "response.completed"))


def responses_tools():
    first = client.responses.create(model=MODEL, input="What is the weather in Paris?", tools=FLAT_TOOLS)
    call = next(item for item in first.output if item.type == "function_call")
    equal((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Paris"}))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = client.responses.create(
        model=MODEL, input=[result], previous_response_id=first.id, tools=FLAT_TOOLS
    )
    equal(second.output_text, SUNNY)


def responses_schema():
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    answer = client.responses.create(model=MODEL, input="Describe Ada", text=form)
    equal(json.loads(answer.output_text), ADA)


def responses_reasoning():
    answer = client.responses.create(
        model=MODEL,
        input="Think hard",
        reasoning={"effort": "medium", "summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    thought = next(item for item in answer.output if item.type == "reasoning")
    equal(thought.summary[0].text.strip(), THOUGHT)
    assert thought.encrypted_content
    equal(answer.output_text.strip(), ANSWER)


def errors():
    for wrong, kind in [
        ({"temperature": "warm"}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
    ]:
        try:
            chat.create(**({"model": MODEL, "messages": user("Say hello")} | wrong))
        except kind as error:
            assert error.body["type"] == "invalid_request_error", error.body
        else:
            raise AssertionError(f"{wrong} was taken")
    try:
        chat.create(model=MODEL, messages=user("word " * 200_000))
    except openai.BadRequestError as error:
        equal(error.code, "context_length_exceeded")
    else:
        raise AssertionError("a prompt that does not fit was taken")


def cancellation():
    def leave():
        stream = chat.create(model=MODEL, messages=user("Go on"), stream=True)
        next(iter(stream))
        stream.close()

    is_cancelled_by(leave)


run([
    chat_whole, chat_stream, chat_tools, chat_tools_stream, chat_tool_choice, chat_schema, chat_reasoning, completions,
    responses_whole, responses_stream, responses_tools, responses_schema, responses_reasoning, errors, cancellation,
])
