// What the modules of this folder share: a browser, checks that are counted, what a page did that it must not.

import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

export const { ANDANTE, REAL, KEYED, KEY, SCRIPTED, PICTURES } = process.env;

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  // Root has no user namespaces to make a sandbox with; nothing but our own servers is visited.
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--force-color-profile=srgb'],
});

const counts = { passed: 0, failed: 0 };

/** Runs a check in a browser that knows nothing yet, and says how it went. */
export async function check(name, run, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const faults = [];
  watch(context, faults);
  try {
    await run(await context.newPage(), context);
    assert.deepEqual(faults, []);
    counts.passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    counts.failed += 1;
    console.log(`not ok ${name}\n${error.stack}`);
    for (const fault of faults) console.log(`  ${fault}`);
    const [page] = context.pages();
    await page?.screenshot({ path: `${PICTURES}/failed.png` }).catch(() => {});
  } finally {
    await context.close();
  }
}

/** Notes every request to elsewhere, every error of a script and every breach of the page's policy. */
function watch(context, faults) {
  context.on('request', (request) => {
    const { origin, protocol } = new URL(request.url());
    if (![REAL, KEYED, SCRIPTED].includes(origin) && !['data:', 'blob:'].includes(protocol)) faults.push(`asked ${request.url()}`);
  });
  context.on('weberror', (error) => faults.push(`threw ${error.error().stack}`));
  context.on('console', (message) => {
    // A refused request is told there too, and is meant.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) faults.push(`logged ${message.text()}`);
  });
  context.on('dialog', (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
}

/** Ends the run; whether all went well is the exit status. */
export async function finish() {
  await browser.close();
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  process.exit(counts.failed ? 1 : 0);
}

/** Writes a message and sends it. */
export async function send(page, text) {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until no answer is under way. */
export async function answered(page) {
  await page.locator('.message.model[aria-busy="false"]').last().waitFor({ timeout: 120_000 });
  await page.getByRole('button', { name: 'Send', exact: true }).waitFor({ timeout: 120_000 });
}

/** Settings of conversations that are begun from now on in a page, or in all of a context. */
export const settings = (place, values) => place.addInitScript((kept) => {
  // An empty page comes first, which may keep nothing.
  if (location.protocol === 'http:') localStorage.setItem('andante.settings', kept);
}, JSON.stringify(values));
