"""langchain-openai."""

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from check import *

model = ChatOpenAI(model=MODEL, base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "", "parameters": WEATHER}}]


def chat():
    equal(model.invoke("Say hello").content, HELLO)


def streaming():
    equal("".join(chunk.content for chunk in model.stream("Say hello")), HELLO)


def tools():
    messages = [HumanMessage("What is the weather in Paris?")]
    answer = model.bind_tools(TOOLS).invoke(messages)
    call = answer.tool_calls[0]
    equal((call["name"], call["args"]), ("get_weather", {"city": "Paris"}))
    messages += [answer, ToolMessage("sunny", tool_call_id=call["id"])]
    equal(model.bind_tools(TOOLS).invoke(messages).content, SUNNY)


def json_schema():
    schema = PERSON | {"title": "person", "description": "Somebody."}
    equal(model.with_structured_output(schema, method="json_schema").invoke("Describe Ada"), ADA)


def forced_tool():
    bound = model.bind_tools(TOOLS, tool_choice="get_weather", parallel_tool_calls=False)
    equal(bound.invoke("What is the weather in Paris?").tool_calls[0]["args"], {"city": "Paris"})


def responses():
    over = ChatOpenAI(model=MODEL, base_url=f"{BASE}/v1", api_key=KEY, max_retries=0, use_responses_api=True)
    equal(over.invoke("Say hello").text, HELLO)


def errors():
    try:
        model.invoke("word " * 200_000)
    except openai.BadRequestError as error:
        equal(error.code, "context_length_exceeded")
    else:
        raise AssertionError("a prompt that does not fit was taken")


def cancellation():
    def leave():
        stream = model.stream("Go on")
        next(stream)
        stream.close()

    is_cancelled_by(leave)


run([chat, streaming, tools, json_schema, forced_tool, responses, errors, cancellation])
