// anthropic-node: messages.
import Anthropic from "@anthropic-ai/sdk";
import { ADA, ANSWER, BASE, HELLO, KEY, LONG, MODEL, PERSON, SUNNY, THOUGHT, WEATHER, assert, equal, isCancelledBy, run } from "./check.mjs";

const client = new Anthropic({ baseURL: BASE, apiKey: KEY, maxRetries: 0 });
const ask = (content, more) => ({ model: MODEL, max_tokens: 200, messages: [{ role: "user", content }], ...more });
const tools = [{ name: "get_weather", input_schema: WEATHER }];

async function chat() {
  equal((await client.messages.create(ask("Say hello"))).content[0].text, HELLO);
}

async function streaming() {
  equal(await client.messages.stream(ask("Say hello")).finalText(), HELLO);
}

async function toolUse() {
  const question = ask("What is the weather in Paris?", { tools });
  const answer = await client.messages.stream(question).finalMessage();
  equal(answer.stop_reason, "tool_use");
  const call = answer.content.at(-1);
  equal([call.name, call.input], ["get_weather", { city: "Paris" }]);
  question.messages.push({ role: "assistant", content: answer.content });
  question.messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "sunny" }] });
  equal((await client.messages.create(question)).content[0].text, SUNNY);
}

async function jsonSchema() {
  const output_config = { format: { type: "json_schema", schema: PERSON } };
  equal(JSON.parse((await client.messages.create(ask("Describe Ada", { output_config }))).content[0].text), ADA);
}

async function reasoning() {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const answer = await client.messages.stream(ask("Think hard", { thinking, max_tokens: 2048 })).finalMessage();
  equal([answer.content[0].thinking.trim(), answer.content[1].text.trim()], [THOUGHT, ANSWER]);
  assert(answer.content[0].signature);
}

async function counting() {
  const { input_tokens } = await client.messages.countTokens({ model: MODEL, messages: ask("Say hello").messages });
  assert(input_tokens > 0);
}

async function errors() {
  await assert.rejects(client.messages.create(ask("Say hello", { temperature: "warm" })), { status: 400 });
  await assert.rejects(client.messages.create(ask(LONG)), /prompt is too long/);
}

async function cancellation() {
  await isCancelledBy(async () => {
    for await (const _ of await client.messages.create(ask("Go on", { stream: true, max_tokens: 20_000 }))) break;
  });
}

await run([chat, streaming, toolUse, jsonSchema, reasoning, counting, errors, cancellation]);
