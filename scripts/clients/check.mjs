// What the JavaScript drivers share, as check.py: `node DRIVER.mjs http://127.0.0.1:PORT`, where the packages are installed.
import assert from "node:assert/strict";

export const BASE = process.argv[2];
export const MODEL = "scripted";
export const KEY = "none";
export const HELLO = "Hello there!";
export const SUNNY = "It is sunny in Paris.";
export const ADA = { name: "Ada", age: 36 };
export const THOUGHT = "Six times seven.";
export const ANSWER = "Forty-two.";
export const LONG = "word ".repeat(200_000);
export const WEATHER = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
export const PERSON = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
export const equal = assert.deepEqual;
export { assert };

/** Runs every feature; the program's status says whether all went well. */
export async function run(features) {
  for (const feature of features) {
    try {
      await feature();
      console.log(`ok ${feature.name}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL ${feature.name}: ${String(error?.stack ?? error).split("\n").slice(0, 6).join("\n    ")}`);
    }
  }
  process.exit();
}

async function cancelled() {
  const page = await (await fetch(`${BASE}/metrics`)).text();
  const line = page.split("\n").find((line) => line.startsWith('andante_requests_total{outcome="cancelled"}'));
  return Number(line.split(" ").at(-1));
}

/** Asks that `leave` makes the server forget a request, within some seconds. */
export async function isCancelledBy(leave) {
  const before = await cancelled();
  await leave();
  for (let i = 0; i < 100; i++) {
    if ((await cancelled()) > before) return;
    await new Promise((wake) => setTimeout(wake, 50));
  }
  throw new Error("the server went on for nobody");
}
