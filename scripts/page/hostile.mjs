// Answers that want to do harm: ten thousand of them through the page's own renderer, whole and as they grow.

import assert from 'node:assert/strict';
import { answered, check, SCRIPTED, send } from './check.mjs';

const OUTPUTS = 10_000;

await check('an answer that wants to run does not', async (page) => {
  await page.goto(SCRIPTED);
  await send(page, 'be hostile');
  await answered(page);
  assert.equal(await page.evaluate(() => window.ran), undefined);
  const answer = page.locator('.message.model > .text');
  assert.equal(await answer.locator('script, img, iframe, style').count(), 0);
  assert.match(await answer.innerText(), /<script>window.ran = 1<\/script>/);
});

await check(`${OUTPUTS} hostile answers neither run nor break the layout`, async (page) => {
  await page.goto(SCRIPTED);
  await send(page, 'hello');
  await answered(page);
  const report = await page.evaluate(attack, OUTPUTS);
  assert.deepEqual(report.breaches, []);
  assert.equal(report.done, OUTPUTS);
  assert.ok(report.elements > OUTPUTS, `only ${report.elements} elements were made`);
});

/** Runs in the page. */
async function attack(outputs) {
  const { show } = await import('/page/markdown.js');
  const breaches = [];
  addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => breaches.push(`policy: ${violatedDirective} ${blockedURI}`));

  // Numerical Recipes' generator: the same answers every time.
  let seed = 20_240_601;
  const random = (below) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  const pick = (list) => list[random(list.length)];
  const some = (make, most) => Array.from({ length: random(most) + 1 }, make).join('');
  const run = () => `window.ran=${random(100)}`;
  const uri = () => pick([`javascript:${run()}`, `JaVaScRiPt:${run()}`, `java\tscript:${run()}`, `&#106;avascript:${run()}`, ` javascript:${run()}`,
    `data:text/html,<script>${run()}</script>`, 'vbscript:x', '//example.org/x', 'https://example.org/?<script>', `\u0001javascript:${run()}`, 'file:///etc/passwd', 'blob:x', '#/model', '?x', '../../x']);
  const attributes = () => some(() => pick([` onerror="${run()}"`, ` onload=${run()}`, ` onfocus='${run()}' autofocus`, ` style="position:fixed;inset:0;z-index:999"`,
    ` href="${uri()}"`, ` src=${uri()}`, ' id=main', ' name=body', ' class="composer bar"', ' tabindex=1', ' contenteditable', ` formaction=${uri()}`, ' is=x', ' slot=y', ' hidden']), 4);
  const tag = () => pick(['script', 'img', 'iframe', 'svg', 'math', 'style', 'link', 'base', 'meta', 'form', 'input', 'object', 'embed', 'template', 'noscript', 'textarea',
    'video', 'audio', 'details', 'dialog', 'body', 'html', 'table', 'td', 'a', 'xmp', 'plaintext', 'foreignObject', 'animate', 'use', 'mtext', 'select', 'frameset', 'marquee', 'slot']);
  const html = () => {
    const name = tag();
    return pick([`<${name}${attributes()}>${pick(['', run(), '<', '-->', ']]>'])}</${name}>`, `<${name}${attributes()}>`, `</${name}>`, `<${name}/${attributes()}`,
      `<!--${html2()}-->`, `<![CDATA[${html2()}]]>`, `<?xml ${run()}?>`, `<!DOCTYPE html>`, `<${name}\n\n${attributes()}\n>`]);
  };
  const html2 = () => `<${tag()}${attributes()}>`;
  const words = () => some(() => pick(['word ', 'x'.repeat(random(400) + 1), ' ', '\u202e', '\u2066', 'a\u0301'.repeat(random(30)), 'Z\u0351\u0352\u0353\u0354'.repeat(random(40)), '\u200b', '\ufeff', '😀', '\u0000', '\ud800', '漢字', 'ﷺ'.repeat(random(20)), '&lt;', '&#0;', '&#x1f600;', '\\', '`', '*', '_', '~']), 8);
  const link = () => pick([`[${words()}](${uri()})`, `![${words()}](${uri()} "${words()}")`, `<${uri()}>`, `[x]: ${uri()}\n`, '[x]', `[${html()}](${uri()})`, `[x][${words()}]`, `https://example.org/${'y'.repeat(random(300))}`]);
  const block = () => pick([
    () => `${'#'.repeat(random(8))} ${words()}\n`,
    () => `${'> '.repeat(random(120))}${words()}\n`,
    () => Array.from({ length: random(60) + 1 }, (_, depth) => `${' '.repeat(2 * depth)}- ${pick(['x', words(), html()])}\n`).join(''),
    () => `${random(1e9)}. ${words()}\n`,
    () => `\`\`\`${pick(['rust', 'html', 'js" onload="x', '<script>', 'python', 'x'.repeat(200), ''])}\n${pick([html(), words(), run(), 'y'.repeat(2_000)])}\n${pick(['```', '', '~~~'])}\n`,
    () => `|${' a |'.repeat(random(80) + 1)}\n|${pick([':-:|', '--:|', '---|']).repeat(random(80) + 1)}\n|${` ${words().replaceAll('\n', '')} |`.repeat(random(80) + 1)}\n`,
    () => `${html()}\n`, () => `${link()}\n`, () => `${words()}\n`, () => '\n'.repeat(random(50)), () => '---\n', () => `    ${html()}\n`, () => `${'['.repeat(random(200))}${']'.repeat(random(200))}\n`,
    () => `${'*'.repeat(random(100))}${words()}${'*'.repeat(random(100))}\n`, () => `$$${words()}$$\n`, () => `\t${words()}\n`,
  ])();

  const message = document.querySelector('.message.model > .text');
  const places = ['.bar', '.composer', '.list'].map((name) => document.querySelector(name));
  const boxes = () => JSON.stringify(places.map((place) => place.getBoundingClientRect()));
  const before = boxes();
  const column = document.querySelector('.messages').getBoundingClientRect();
  const ALLOWED = new Set(['P', 'BR', 'HR', 'STRONG', 'EM', 'S', 'CODE', 'PRE', 'SPAN', 'A', 'UL', 'OL', 'LI', 'BLOCKQUOTE', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'TABLE', 'THEAD', 'TBODY', 'TR', 'TH', 'TD']);
  const ATTRIBUTES = new Set(['href', 'title', 'class', 'start', 'target', 'rel', 'tabindex', 'role', 'aria-label', 'data-language']);
  const CLASSES = /^((hljs|language)-\S+|to-(left|right|center)|hljs|function_|class_|inherited__|language_|constant_|invoke__|escape_|dispatch_|built_in|\s)*$/;

  let elements = 0;
  const wrong = (number, what, text) => breaches.push(`answer ${number}: ${what}: ${text.slice(0, 300)}`);
  for (let number = 0; number < outputs && breaches.length < 5; number += 1) {
    const text = some(block, 6);
    if (number % 5 === 0) for (let cut = random(40); cut < text.length; cut += 40 + random(200)) show(message, text.slice(0, cut));
    show(message, text);
    for (const element of message.querySelectorAll('*')) {
      elements += 1;
      if (!ALLOWED.has(element.tagName)) wrong(number, element.tagName, text);
      for (const { name, value } of element.attributes) {
        if (!ATTRIBUTES.has(name)) wrong(number, `${element.tagName} ${name}`, text);
        if (name === 'href' && !/^(https?|mailto):/.test(value)) wrong(number, value, text);
        if (name === 'class' && !CLASSES.test(value)) wrong(number, `class ${value}`, text);
      }
    }
    if (document.scrollingElement.scrollWidth > innerWidth || document.scrollingElement.scrollHeight > innerHeight) wrong(number, 'the page grew', text);
    const box = message.getBoundingClientRect();
    if (box.left < column.left || box.right > column.right + 1) wrong(number, `as wide as ${box.left} to ${box.right}`, text);
    if (boxes() !== before) wrong(number, 'other parts moved', text);
    if (window.ran !== undefined) wrong(number, 'it ran', text);
    if (number % 5 === 0) {
      // As it grew, it became what it is at once.
      const grown = message.innerHTML;
      const whole = document.createElement('div');
      show(whole, text);
      if (grown !== whole.innerHTML) wrong(number, 'it depends on how it came', text);
    }
    if (number % 500 === 0) await new Promise((resolve) => setTimeout(resolve));
  }
  // What waits to run has had its time.
  await new Promise((resolve) => setTimeout(resolve, 500));
  if (window.ran !== undefined) breaches.push('something ran');
  return { breaches, done: outputs, elements };
}
