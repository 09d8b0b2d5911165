// openai-node: chat completions and Responses.
import OpenAI from "openai";
import { ADA, ANSWER, BASE, HELLO, KEY, LONG, MODEL, PERSON, SUNNY, THOUGHT, WEATHER, assert, equal, isCancelledBy, run } from "./check.mjs";

const client = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY, maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const tools = [{ type: "function", function: { name: "get_weather", parameters: WEATHER } }];
const ask = (text, more) => client.chat.completions.create({ model: MODEL, messages: user(text), ...more });

async function chat() {
  equal((await ask("Say hello")).choices[0].message.content, HELLO);
}

async function streaming() {
  let text = "";
  for await (const chunk of await ask("Say hello", { stream: true })) text += chunk.choices[0].delta.content ?? "";
  equal(text, HELLO);
}

async function toolCalls() {
  const messages = user("What is the weather in Paris?");
  const { message } = (await client.chat.completions.create({ model: MODEL, messages, tools })).choices[0];
  equal(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
  messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" });
  equal((await client.chat.completions.create({ model: MODEL, messages, tools })).choices[0].message.content, SUNNY);
}

async function toolCallsStreamed() {
  const stream = client.chat.completions.stream({ model: MODEL, messages: user("What is the weather in Paris?"), tools });
  const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
  equal(finish_reason, "tool_calls");
  equal(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
}

async function jsonSchema() {
  const response_format = { type: "json_schema", json_schema: { name: "person", schema: PERSON, strict: true } };
  equal(JSON.parse((await ask("Describe Ada", { response_format })).choices[0].message.content), ADA);
}

async function reasoning() {
  const { message } = (await ask("Think hard")).choices[0];
  equal([message.reasoning_content.trim(), message.content.trim()], [THOUGHT, ANSWER]);
}

async function responses() {
  const answer = await client.responses.create({ model: MODEL, input: "Say hello" });
  equal(answer.output_text, HELLO);
  const kinds = [];
  let last;
  for await (const event of await client.responses.create({ model: MODEL, input: "Say hello", stream: true })) {
    kinds.push(event.type);
    last = event;
  }
  equal([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
  assert(last.response.usage.total_tokens > 0);
}

async function errors() {
  await assert.rejects(ask("Say hello", { temperature: "warm" }), { status: 400, type: "invalid_request_error" });
  await assert.rejects(ask(LONG), { status: 400, code: "context_length_exceeded" });
}

async function cancellation() {
  await isCancelledBy(async () => {
    for await (const _ of await ask("Go on", { stream: true })) break;
  });
}

await run([chat, streaming, toolCalls, toolCallsStreamed, jsonSchema, reasoning, responses, errors, cancellation]);
