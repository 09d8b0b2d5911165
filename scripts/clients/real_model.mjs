// All the JavaScript clients on a real model, as real_model.py has the Python ones.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { Output, generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { BASE, KEY, MODEL, assert, equal, isCancelledBy, run } from "./check.mjs";

const ASK = "Name three colours of the rainbow.";
const MOST = 16;
const LONG = "word ".repeat(20_000);
const ITEM = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, size: { enum: ["small", "large"] } },
  required: ["name", "size"],
  additionalProperties: false,
};
const PLACE = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const openai = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: BASE, apiKey: KEY, maxRetries: 0 });
const compatible = createOpenAICompatible({ name: "local", baseURL: `${BASE}/v1`, apiKey: KEY, supportsStructuredOutputs: true })(MODEL);
const responses = createOpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY })(MODEL);
const claude = createAnthropic({ baseURL: `${BASE}/v1`, apiKey: KEY })(MODEL);

const question = { model: MODEL, temperature: 0, messages: [{ role: "user", content: ASK }], max_tokens: MOST };
const greedy = { temperature: 0, prompt: ASK, maxRetries: 0 };
const chatted = (more) => openai.chat.completions.create({ ...question, ...more });
const messaged = (more) => anthropic.messages.create({ ...question, ...more });
const TEXT = (await chatted()).choices[0].message.content;

function isItem(item) {
  equal(Object.keys(item).sort(), ["name", "size"]);
  assert([...item.name].length <= 12 && ["small", "large"].includes(item.size));
}

function isPlace(name, place) {
  equal([name, Object.keys(place)], ["get_weather", ["city"]]);
  assert(["Paris", "Rome"].includes(place.city));
}

async function chat() {
  assert(TEXT.trim());
  equal((await openai.responses.create({ model: MODEL, input: ASK, temperature: 0, max_output_tokens: MOST })).output_text, TEXT);
  equal((await messaged()).content[0].text, TEXT);
  for (const model of [compatible, responses, claude]) {
    equal((await generateText({ model, maxOutputTokens: MOST, ...greedy })).text, TEXT);
  }
}

async function streaming() {
  let text = "";
  for await (const chunk of await chatted({ stream: true })) text += chunk.choices[0].delta.content ?? "";
  equal(text, TEXT);
  equal(await anthropic.messages.stream(question).finalText(), TEXT);
  for (const model of [compatible, responses, claude]) {
    text = "";
    for await (const piece of streamText({ model, maxOutputTokens: MOST, ...greedy }).textStream) text += piece;
    equal(text, TEXT);
  }
}

async function schema() {
  const response_format = { type: "json_schema", json_schema: { name: "item", schema: ITEM, strict: true } };
  isItem(JSON.parse((await chatted({ response_format, max_tokens: 100 })).choices[0].message.content));
  const output_config = { format: { type: "json_schema", schema: ITEM } };
  isItem(JSON.parse((await messaged({ output_config, max_tokens: 100 })).content[0].text));
  for (const model of [compatible, responses]) {
    const output = Output.object({ schema: jsonSchema(ITEM) });
    isItem((await generateText({ model, output, maxOutputTokens: 100, ...greedy })).output);
  }
}

async function forcedTools() {
  const tools = [{ type: "function", function: { name: "get_weather", parameters: PLACE } }];
  const stream = openai.chat.completions.stream({ ...question, tools, tool_choice: "required", max_tokens: 200 });
  const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
  equal(finish_reason, "tool_calls");
  isPlace(message.tool_calls[0].function.name, JSON.parse(message.tool_calls[0].function.arguments));
  const use = { tools: [{ name: "get_weather", input_schema: PLACE }], tool_choice: { type: "any" }, max_tokens: 200 };
  const call = (await anthropic.messages.stream({ ...question, ...use }).finalMessage()).content.at(-1);
  isPlace(call.name, call.input);
  for (const model of [compatible, responses, claude]) {
    const offered = { get_weather: tool({ inputSchema: jsonSchema(PLACE) }) };
    const answer = await generateText({ model, tools: offered, toolChoice: "required", maxOutputTokens: 200, ...greedy });
    isPlace(answer.toolCalls[0].toolName, answer.toolCalls[0].input);
  }
}

async function noReasoning() {
  assert(!("reasoning_content" in (await chatted({ reasoning_effort: "high" })).choices[0].message));
  equal((await generateText({ model: compatible, maxOutputTokens: MOST, ...greedy })).reasoning, []);
}

async function errors() {
  await assert.rejects(chatted({ temperature: "warm" }), { status: 400, type: "invalid_request_error" });
  await assert.rejects(chatted({ messages: [{ role: "user", content: LONG }] }), { code: "context_length_exceeded" });
  await assert.rejects(messaged({ messages: [{ role: "user", content: LONG }] }), /prompt is too long/);
}

async function cancellation() {
  await isCancelledBy(async () => {
    for await (const _ of await chatted({ stream: true, ignore_eos: true, max_tokens: 8000 })) break;
  });
  await isCancelledBy(async () => {
    for await (const _ of await messaged({ stream: true, ignore_eos: true, max_tokens: 8000 })) break;
  });
}

await run([chat, streaming, schema, forcedTools, noReasoning, errors, cancellation]);
