// Pictures of what people see, for people to look at; the only thing asserted is that there is something to see.

import { answered, check, PICTURES, REAL, send, settings } from './check.mjs';
import { LONG } from './schedule.mjs';

async function scene(page, context, name) {
  await settings(context, { temperature: '0.2', seed: '7', max_tokens: '900' });
  await page.goto(REAL);
  await send(page, 'Write a short Python function that reverses a list, with an explanation of how it works');
  await answered(page);
  const tabs = [];
  for (const words of ['Tell me a very long story about a river', 'Explain at length how bread is baked']) {
    const tab = await context.newPage();
    await tab.goto(`${REAL}/#/chat/new`);
    await send(tab, words);
    tabs.push(tab);
  }
  const third = await context.newPage();
  await third.goto(`${REAL}/#/chat/new`);
  await third.waitForTimeout(1_500);
  // Three quarters of the context, and of each scene its own: what is known is not read again.
  await send(third, `${name}: ${LONG} ${LONG} ${LONG}`);
  await third.getByText(/Reading the prompt/).waitFor();
  await third.waitForTimeout(700);
  await third.screenshot({ path: `${PICTURES}/reading.png` });
  await page.bringToFront();
  await page.getByRole('link', { name: 'Schedule' }).click();
  await page.waitForTimeout(4_000);
  await page.getByRole('button', { name: 'Pause' }).click();
  for (const tab of [...tabs, third]) await tab.keyboard.press('Escape');
}

for (const colorScheme of ['light', 'dark']) {
  await check(`pictures, ${colorScheme}`, async (page, context) => {
    await scene(page, context, colorScheme);
    const box = await page.locator('canvas').boundingBox();
    await page.mouse.move(box.x + box.width * 0.7, box.y + 70);
    await page.screenshot({ path: `${PICTURES}/schedule-${colorScheme}.png` });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${PICTURES}/schedule-phone-${colorScheme}.png` });
    await page.setViewportSize({ width: 1280, height: 800 });
    for (const view of ['kv', 'model']) {
      await page.evaluate((name) => { location.hash = `#/${name}`; }, view);
      await page.locator('.cards').waitFor();
      await page.screenshot({ path: `${PICTURES}/${view}-${colorScheme}.png` });
    }
    await page.goto(`${REAL}/#/chat`);
    await page.getByRole('link', { name: /Python/ }).click();
    await page.locator('.message.model').waitFor();
    await page.screenshot({ path: `${PICTURES}/chat-${colorScheme}.png` });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.screenshot({ path: `${PICTURES}/chat-phone-${colorScheme}.png` });
  }, { colorScheme });
}
