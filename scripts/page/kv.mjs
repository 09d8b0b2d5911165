// What the page tells of the cache: prefixes as a tree, what of them is on disk, what prompts found.

import assert from 'node:assert/strict';
import { answered, check, REAL, send, settings } from './check.mjs';

await check('a prefix is shown once, and as kept on disk when it is', async (page, context) => {
  await settings(context, { temperature: '0', max_tokens: '8' });
  const beginning = 'Of all the rivers of this country the one in the north is said to be the oldest. '.repeat(4);
  for (const end of ['Where does it begin?', 'Where does it end?']) {
    await page.goto(`${REAL}/#/chat/new`);
    await send(page, beginning + end);
    await answered(page);
  }
  await page.getByRole('link', { name: 'Cache' }).click();
  // What they share, and below it the two ends, whose last blocks are not full.
  const shared = page.locator('.tree li:has(> ul)', { has: page.locator(':scope > .run', { hasText: 'kept, on disk too' }) });
  await shared.first().waitFor({ timeout: 60_000 });
  const found = page.locator('.figures-table tbody tr').first().locator('td');
  const [, prompt, memory, store, computed] = (await found.allInnerTexts()).map((text) => Number(text.replace(/\D/g, '')));
  assert.ok(memory > 64 && store === 0 && memory + computed === prompt, `${memory} and ${store} of ${prompt}, ${computed} computed`);
});
