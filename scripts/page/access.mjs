// Who gets in, and who can use the page: keys, names for everything, small and large screens, a first picture that comes soon.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { answered, check, KEY, KEYED, REAL, SCRIPTED, send } from './check.mjs';

const axe = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

await check('a key is asked for, kept, and sent', async (page) => {
  await page.goto(KEYED);
  await send(page, 'hello');
  const dialog = page.getByRole('dialog', { name: 'API key' });
  await dialog.getByLabel('API key').fill(KEY);
  await dialog.getByRole('button', { name: 'Use it' }).click();
  await page.reload();
  await page.getByRole('link', { name: 'New chat' }).click();
  await page.locator('.welcome').waitFor();
  await send(page, 'hello again');
  await answered(page);
  assert.equal(await page.locator('.message.model .error').count(), 0);
  await page.getByRole('link', { name: 'Schedule' }).click();
  await page.locator('canvas[data-steps]:not([data-steps="0"])').waitFor();
});

await check('a wrong key opens nothing', async (page) => {
  await page.addInitScript(() => localStorage.setItem('andante.key', 'sk-wrong'));
  await page.goto(`${KEYED}/#/schedule`);
  await page.getByRole('dialog', { name: 'API key' }).waitFor();
  for (const path of ['/timeline', '/timeline/events', '/kv', '/model']) {
    assert.equal(await page.evaluate(async (at) => (await fetch(at)).status, path), 401);
  }
});

const VIEWS = ['chat', 'schedule', 'kv', 'model'];

for (const colorScheme of ['light', 'dark']) {
  await check(`everything has a name and enough contrast, ${colorScheme}`, async (page) => {
    await page.goto(SCRIPTED);
    await send(page, 'show me markdown');
    await answered(page);
    for (const view of VIEWS) {
      await page.evaluate((name) => { location.hash = `#/${name}`; }, view);
      if (view === 'chat') await page.goto(`${SCRIPTED}/#/chat`);
      else await page.locator('.cards').waitFor();
      if (view === 'chat') await page.getByRole('link', { name: /show me markdown/ }).click();
      await page.waitForTimeout(300);
      // Through the browser's own door: the page's policy lets no text become a script.
      const session = await page.context().newCDPSession(page);
      await session.send('Runtime.evaluate', { expression: axe });
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      const told = violations.map(({ id, nodes }) => `${view}: ${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
      assert.deepEqual(told, []);
    }
  }, { colorScheme });
}

for (const width of [320, 390, 768, 1280, 2560]) {
  await check(`nothing is wider than a screen of ${width} pixels`, async (page) => {
    await page.goto(SCRIPTED);
    await send(page, 'show me markdown');
    await answered(page);
    for (const view of VIEWS) {
      await page.evaluate((name) => { location.hash = `#/${name}`; }, view);
      await page.waitForTimeout(400);
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
      assert.ok(wide <= width, `${view} is ${wide} wide`);
    }
  }, { viewport: { width, height: 720 } });
}

await check('all can be done with the keyboard', async (page) => {
  await page.goto(SCRIPTED);
  await page.locator('.composer').waitFor();
  // The field is where one writes at once.
  await page.keyboard.type('hello');
  await page.keyboard.press('Enter');
  await answered(page);
  await page.goto(`${SCRIPTED}/#/model`);
  await page.reload();
  await page.locator('.cards').waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await page.goto(`${SCRIPTED}/#/schedule`);
  await page.locator('canvas[data-steps]:not([data-steps="0"])').focus();
  await page.keyboard.press('Space');
  await page.getByRole('button', { name: 'Go on' }).waitFor();
  await page.keyboard.press('ArrowLeft');
  await page.getByText(/Step [\d,]+/).waitFor();
  await page.keyboard.press('+');
  await page.getByText('5.0 s', { exact: true }).waitFor();
});

await check('the first picture comes within a second', async (page) => {
  const times = [];
  for (let load = 0; load < 3; load += 1) {
    await page.goto(REAL);
    await page.locator('.composer').waitFor();
    times.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
  }
  assert.ok(Math.min(...times) < 1_000, `it came after ${times} ms`);
});
