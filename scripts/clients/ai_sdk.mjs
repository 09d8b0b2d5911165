// The AI SDK: its OpenAI-compatible provider, and those for Responses and Anthropic.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { ADA, ANSWER, BASE, HELLO, KEY, LONG, MODEL, PERSON, SUNNY, THOUGHT, WEATHER, assert, equal, isCancelledBy, run } from "./check.mjs";

const compatible = createOpenAICompatible({ name: "local", baseURL: `${BASE}/v1`, apiKey: KEY, supportsStructuredOutputs: true })(MODEL);
const responses = createOpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY })(MODEL);
const anthropic = createAnthropic({ baseURL: `${BASE}/v1`, apiKey: KEY })(MODEL);
const all = [compatible, responses, anthropic];
const tools = { get_weather: tool({ inputSchema: jsonSchema(WEATHER), execute: async () => "sunny" }) };

async function chat() {
  for (const model of all) equal((await generateText({ model, prompt: "Say hello", maxRetries: 0 })).text, HELLO);
}

async function streaming() {
  for (const model of all) {
    let text = "";
    for await (const piece of streamText({ model, prompt: "Say hello", maxRetries: 0 }).textStream) text += piece;
    equal(text, HELLO);
  }
}

async function toolLoop() {
  for (const model of all) {
    const answer = streamText({ model, tools, prompt: "What is the weather in Paris?", stopWhen: stepCountIs(3), maxRetries: 0 });
    equal(await answer.text, SUNNY);
    equal((await answer.steps).length, 2);
  }
}

async function structured() {
  for (const model of all) {
    const output = Output.object({ schema: jsonSchema(PERSON) });
    equal((await generateText({ model, output, prompt: "Describe Ada", maxRetries: 0 })).output, ADA);
  }
}

async function reasoning() {
  const providerOptions = { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } };
  for (const model of all) {
    const answer = await generateText({ model, prompt: "Think hard", providerOptions, maxRetries: 0 });
    equal([answer.reasoningText.trim(), answer.text.trim()], [THOUGHT, ANSWER]);
  }
}

async function errors() {
  for (const model of all)
    await assert.rejects(generateText({ model, prompt: LONG, maxRetries: 0 }), /maximum context length|prompt is too long/);
}

async function cancellation() {
  for (const model of all)
    await isCancelledBy(async () => {
      const leave = new AbortController();
      try {
        for await (const _ of streamText({ model, prompt: "Go on", abortSignal: leave.signal }).textStream) leave.abort();
      } catch {}
    });
}

await run([chat, streaming, toolLoop, structured, reasoning, errors, cancellation]);
