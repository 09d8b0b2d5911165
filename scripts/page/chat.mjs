// Conversations.

import assert from 'node:assert/strict';
import { answered, check, REAL, SCRIPTED, send, settings } from './check.mjs';

const text = (page) => page.locator('.message.model').last().locator(':scope > .text').innerText();

await check('a question is answered, and both are there after a reload', async (page) => {
  await settings(page, { temperature: '0', max_tokens: '40' });
  await page.goto(REAL);
  await send(page, 'Say hello to everybody');
  await answered(page);
  const said = await text(page);
  assert.ok(said.length > 2, said);
  const figures = await page.locator('.figures').innerText();
  assert.match(figures, /\d+ tokens? · [\d.,]+ tok\/s · prompt \d+.* · first after/);
  await page.reload();
  await page.locator('.message.model').waitFor();
  assert.equal(await text(page), said);
  assert.equal(await page.locator('.message.user .text').innerText(), 'Say hello to everybody');
  // And in another tab, from the list.
  const other = await page.context().newPage();
  await other.goto(REAL);
  await other.getByRole('link', { name: /Say hello to everybody/ }).click();
  await other.locator('.message.model').waitFor();
  assert.equal(await text(other), said);
});

await check('an answer is stopped, kept as far as it came, and gone on with', async (page) => {
  await settings(page, { temperature: '0', max_tokens: '1500' });
  await page.goto(REAL);
  await send(page, 'Tell me a very long story about a forest');
  await page.waitForFunction(() => document.querySelector('.message.model > .text')?.innerText.length > 20);
  await page.getByRole('button', { name: 'Stop' }).click();
  await answered(page);
  const said = await text(page);
  assert.match(await page.locator('.figures').innerText(), /stopped/);
  await page.reload();
  await page.locator('.message.model').waitFor();
  assert.equal(await text(page), said);
  await page.getByRole('button', { name: 'Go on from here' }).click();
  await page.waitForFunction((before) => document.querySelector('.message.model > .text').innerText.length > before + 10, said.length);
  await page.keyboard.press('Escape');
  await answered(page);
  assert.ok((await text(page)).startsWith(said.slice(0, -4)));
});

await check('editing and asking again make branches', async (page) => {
  await page.goto(SCRIPTED);
  await send(page, 'the first version');
  await answered(page);
  assert.equal(await text(page), 'The first answer.');
  await page.getByRole('button', { name: 'Edit and send again' }).click();
  await page.getByRole('textbox', { name: 'Your message' }).fill('the second version');
  await page.getByRole('button', { name: 'Send', exact: true }).first().click();
  await page.getByText('The second answer.').waitFor();
  await answered(page);
  const user = page.locator('.message.user');
  assert.match(await user.innerText(), /2 \/ 2/);
  await user.getByRole('button', { name: 'Version before' }).click();
  assert.equal(await text(page), 'The first answer.');
  await page.getByRole('button', { name: 'Ask again' }).click();
  await answered(page);
  assert.match(await page.locator('.message.model').innerText(), /2 \/ 2/);
  await page.reload();
  await page.locator('.message.model').waitFor();
  assert.match(await page.locator('.message.model').innerText(), /2 \/ 2/);
  assert.match(await page.locator('.message.user').innerText(), /1 \/ 2/);
});

await check('reasoning is folded, a call is shown, its result goes back', async (page) => {
  await settings(page, { tools: '[{"name": "weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]' });
  await page.goto(SCRIPTED);
  await send(page, 'the weather in Oslo');
  await answered(page);
  const thoughts = page.locator('.reasoning');
  assert.match(await thoughts.locator('summary').innerText(), /^Thought/);
  assert.equal(await thoughts.locator('.text').isVisible(), false);
  await thoughts.locator('summary').click();
  // Written when the fold has opened, which is told in a task of its own.
  await thoughts.locator('.text', { hasText: 'They want the weather' }).waitFor();
  assert.deepEqual(JSON.parse(await page.locator('.call pre').innerText()), { city: 'Oslo' });
  await page.getByRole('textbox', { name: 'Result of weather' }).fill('rain');
  await page.getByRole('button', { name: 'Send the result' }).click();
  await page.getByText('It rains in Oslo.').waitFor();
});

await check('Markdown is shown, and nothing of it is fetched', async (page) => {
  await page.goto(SCRIPTED);
  await send(page, 'show me markdown');
  await answered(page);
  const answer = page.locator('.message.model > .text');
  assert.equal(await answer.locator('h1').innerText(), 'A heading');
  assert.equal(await answer.locator('pre').getAttribute('data-language'), 'rust');
  assert.ok(await answer.locator('pre .hljs-keyword').count() > 0);
  assert.equal(await answer.locator('td.to-right').innerText(), '1');
  assert.equal(await answer.locator('img').count(), 0);
  for (const link of await answer.locator('a').all()) assert.equal(await link.getAttribute('rel'), 'noopener noreferrer nofollow');
  assert.equal(await answer.locator('li').count(), 2);
});

await check('an answer keeps to a schema', async (page) => {
  await settings(page, {
    temperature: '0',
    max_tokens: '120',
    schema: '{"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"], "additionalProperties": false}',
  });
  await page.goto(REAL);
  await send(page, 'What colour is grass?');
  await answered(page);
  assert.match(JSON.parse(await text(page)).colour, /^(red|green)$/);
});

await check('settings change the request, and a schema that is none is told', async (page) => {
  await page.goto(SCRIPTED);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('textbox', { name: 'System prompt' }).fill('You are terse.');
  await page.getByRole('spinbutton', { name: 'Temperature' }).fill('0.5');
  const schema = page.getByRole('textbox', { name: 'JSON schema of the answer' });
  await schema.fill('{nonsense');
  await page.getByText(/is no JSON/).waitFor();
  await schema.fill('');
  const asked = page.waitForRequest((request) => request.method() === 'POST');
  await send(page, 'hello');
  const body = (await asked).postDataJSON();
  assert.deepEqual(body.messages, [{ role: 'system', content: 'You are terse.' }, { role: 'user', content: 'hello' }]);
  assert.equal(body.temperature, 0.5);
  assert.ok(!('top_p' in body));
  await answered(page);
});

await check('how far a long prompt has come is told while it is read', async (page) => {
  await settings(page, { max_tokens: '4' });
  await page.goto(REAL);
  const words = Array.from({ length: 2_500 }, (_, index) => `word${index % 97}`).join(' ');
  await send(page, words);
  await page.getByText(/Reading the prompt: \d+ of [\d,]+ tokens/).waitFor({ timeout: 60_000 });
  assert.ok(await page.locator('progress').isVisible());
  await page.keyboard.press('Escape');
  await answered(page);
});

await check('several conversations are kept, renamed and deleted', async (page) => {
  await page.goto(SCRIPTED);
  for (const words of ['about apples', 'about pears']) {
    await page.getByRole('link', { name: 'New chat' }).click();
    await page.locator('.welcome').waitFor();
    await send(page, words);
    await answered(page);
  }
  const list = page.getByRole('navigation', { name: 'Conversations' });
  assert.equal(await list.locator('li').count(), 2);
  await list.locator('li', { hasText: 'apples' }).hover();
  await list.getByRole('button', { name: 'Rename about apples' }).click();
  await list.getByRole('textbox').fill('Fruit');
  await page.keyboard.press('Enter');
  await list.getByText('Fruit').waitFor();
  await list.locator('li', { hasText: 'pears' }).hover();
  await list.getByRole('button', { name: 'Delete about pears' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.waitForFunction(() => document.querySelectorAll('.conversations li').length === 1);
});

await check('nothing moves while an answer is written', async (page) => {
  await settings(page, { temperature: '0', max_tokens: '250' });
  await page.addInitScript(() => {
    window.shift = 0;
    new PerformanceObserver((entries) => {
      for (const { value, hadRecentInput } of entries.getEntries()) if (!hadRecentInput) window.shift += value;
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(REAL);
  await send(page, 'Write a list of ten animals with a sentence about each of them');
  await answered(page);
  assert.ok((await page.evaluate(() => window.shift)) < 0.005, `moved by ${await page.evaluate(() => window.shift)}`);
});
