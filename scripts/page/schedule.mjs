// The schedule: what the page shows is what the engine's log says.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { ANDANTE, answered, check, PICTURES, REAL, send, settings } from './check.mjs';

/** Tokens of a prompt that takes many steps. */
export const LONG = Array.from({ length: 700 }, (_, index) => `part${index % 89}`).join(' ');

/** Gaps between tokens of each sequence, by the engine's log alone. */
export function gapsOf(moments) {
  const last = new Map();
  const gaps = [];
  for (const moment of moments) {
    if (moment.kind === 'unparked') last.set(moment.id, moment.at_us);
    if (moment.kind !== 'step') continue;
    const end = moment.started_us + moment.actual_us;
    const tokens = [...moment.decode, ...moment.prefill.filter((part) => part.last).map((part) => part.id)];
    for (const id of tokens) {
      if (last.has(id)) gaps.push({ id, us: end - last.get(id), step: moment.step_no });
      last.set(id, end);
    }
  }
  return gaps;
}

const log = async () => (await fetch(`${REAL}/timeline`)).json();

/** A tab with an answer that is being written. */
async function writing(context, words) {
  const page = await context.newPage();
  await page.goto(`${REAL}/#/chat/new`);
  await send(page, words);
  await page.waitForFunction(() => document.querySelector('.message.model > .text')?.innerText.length > 5);
  return page;
}

await check('two tabs write while a third sends a long prompt: nobody stalls, and the page shows it as it was', async (page, context) => {
  await settings(context, { temperature: '0', max_tokens: '1200' });
  await page.goto(`${REAL}/#/schedule`);
  const tabs = [await writing(context, 'Tell me a very long story about a river'), await writing(context, 'Explain at length how bread is baked')];
  const third = await context.newPage();
  await third.goto(`${REAL}/#/chat/new`);
  const before = (await log()).now_us;
  await send(third, LONG);
  await third.getByText(/Reading the prompt/).waitFor();
  await third.waitForFunction(() => document.querySelector('.message.model > .text')?.innerText.length > 0, null, { timeout: 300_000 });
  for (const tab of [third, ...tabs]) {
    await tab.keyboard.press('Escape');
    await answered(tab);
  }
  await page.bringToFront();
  await page.getByRole('button', { name: 'Pause' }).click();
  // All of it in one span.
  for (let zoom = 0; zoom < 5; zoom += 1) await page.getByRole('button', { name: 'Zoom out' }).click();
  const { moments, stall } = await log();
  const [from, to] = await page.locator('canvas').evaluate(({ dataset }) => [Number(dataset.from), Number(dataset.to)]);
  const longest = new Map();
  for (const gap of gapsOf(moments)) {
    if (!longest.has(gap.step) || longest.get(gap.step).us < gap.us) longest.set(gap.step, gap);
  }
  const steps = moments.filter((moment) => moment.kind === 'step');
  const shown = steps.filter((step) => step.started_us + step.actual_us >= from && step.started_us <= to).map((step) => step.step_no);
  const expected = shown.map((step) => longest.get(step)).filter(Boolean).map(({ us }) => us).sort((a, b) => b - a).slice(0, 8);
  const seen = await page.locator('#gaps tbody tr').evaluateAll((rows) => rows.map(({ dataset }) => Number(dataset.us)));
  assert.ok(expected.length === 8);
  assert.deepEqual(seen, expected);
  // While the prompt is read each step has all running answers in it, and is planned to be no longer than the bound: whatever the
  // machine's clock says, nobody's turn is left out.
  const reading = steps.filter((step) => step.started_us > before && step.prefill.some((part) => !part.last) && step.contended);
  assert.ok(reading.length > 3, `${reading.length} steps`);
  for (const step of reading) {
    assert.equal(step.rows, 2);
    assert.ok(step.floor_limited || step.predicted_us <= stall.in_force_us, JSON.stringify(step));
  }
  // Whatever took longer than the bound is shown as such.
  const over = seen.filter((us) => us > 1.1 * stall.in_force_us).length;
  assert.equal(await page.locator('.card.over').count(), over > 0 ? 1 : 0);
});

await check('what is exported is a picture, and a log that can be simulated', async (page) => {
  await settings(page, { max_tokens: '10' });
  await page.goto(REAL);
  await send(page, 'hello');
  await answered(page);
  await page.getByRole('link', { name: 'Schedule' }).click();
  await page.locator('canvas[data-steps]:not([data-steps="0"])').waitFor();
  const save = async (name, file) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name }).click()]);
    await download.saveAs(`${PICTURES}/${file}`);
    return readFileSync(`${PICTURES}/${file}`, 'utf8');
  };
  const svg = await save('SVG', 'schedule.svg');
  assert.match(svg, /^<svg xmlns/);
  assert.match(svg, /T_stall/);
  const saved = JSON.parse(await save('Log', 'schedule.json'));
  const [recorded, ours, mixed] = JSON.parse(execFileSync(ANDANTE, ['simulate', `${PICTURES}/schedule.json`, '-p', 'ours,mixed:512', '--json']));
  // The engine has told nothing since, but of what it told before the page may have been too late for the beginning.
  const { moments, cost } = await log();
  assert.deepEqual(saved.moments, moments.slice(-saved.moments.length));
  assert.deepEqual(saved.cost, cost);
  const arrived = saved.moments.filter((moment) => moment.kind === 'arrived').map(({ id }) => id);
  const steps = saved.moments.filter((moment) => moment.kind === 'step');
  const longest = Math.max(...gapsOf(saved.moments).filter(({ id }) => arrived.includes(id)).map(({ us }) => us));
  assert.equal(recorded.policy, 'recorded');
  assert.equal(recorded.requests, arrived.length);
  assert.equal(recorded.steps, steps.length);
  assert.ok(longest > 0);
  assert.equal(recorded.max_gap_ms, longest / 1_000);
  // The same requests under other policies, on the machine as it was fitted.
  for (const simulated of [ours, mixed]) {
    assert.equal(simulated.requests, recorded.requests - recorded.unanswered);
    assert.equal(simulated.unanswered, 0);
    assert.ok(simulated.steps > 0 && simulated.max_gap_ms > 0);
  }
  // What the server itself answers is such a file too.
  writeFileSync(`${PICTURES}/timeline.json`, JSON.stringify(await log()));
  const shown = execFileSync(ANDANTE, ['simulate', `${PICTURES}/timeline.json`], { encoding: 'utf8' });
  assert.match(shown, /^steps: \d+, requests: \d+; \d+ of \d+ prompt tokens were known from before\n\n/);
  assert.match(shown, /\nrecorded \|/);
});

await check('it goes on by itself, stands still when told to, and shows a step under the pointer', async (page) => {
  await settings(page, { temperature: '0', max_tokens: '400' });
  await page.goto(REAL);
  await send(page, 'Tell me a story about a mountain');
  await page.waitForFunction(() => document.querySelector('.message.model > .text')?.innerText.length > 5);
  // The answer goes on while another view is open.
  await page.getByRole('link', { name: 'Schedule' }).click();
  const canvas = page.locator('canvas');
  await page.waitForFunction(() => Number(document.querySelector('canvas')?.dataset.steps) > 5);
  const box = await canvas.boundingBox();
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.mouse.move(box.x + box.width - 40, box.y + 60);
  await page.getByText(/Step [\d,]+/).waitFor();
  const to = await canvas.getAttribute('data-to');
  await page.waitForTimeout(1_500);
  assert.equal(await canvas.getAttribute('data-to'), to);
  await page.getByRole('button', { name: 'Go on' }).click();
  assert.notEqual(await canvas.getAttribute('data-to'), to);
  await page.getByRole('link', { name: 'Chat', exact: true }).click();
  await page.getByRole('link', { name: /a mountain/ }).click();
  await answered(page);
  assert.ok((await page.locator('.message.model > .text').innerText()).length > 100);
});
