// Where keys and values are: in memory and in the store, which prefixes are shared, and what recent prompts found.

import { json } from './api.js';
import { h } from './dom.js';
import { bytes, count, counted, percent } from './format.js';
import { card } from './schedule/panels.js';
import { Timeline } from './schedule/timeline.js';

const EVERY_MS = 2_000;
/** Prompts that are listed. */
const MOST_PROMPTS = 20;
/** Deeper runs are as wide as this one. In tokens. */
const WIDEST = 4_096;

export async function kvView(main, _, signal) {
  const content = h('div', {});
  main.replaceChildren(h('div', { class: 'figures-page' }, content));
  const timeline = new Timeline();
  let since = 0;
  while (!signal.aborted) {
    try {
      const [kv, page] = await Promise.all([json('/kv', { signal }), json(`/timeline?since_us=${since}`, { signal })]);
      since = page.now_us;
      timeline.take('moments', page);
      content.replaceChildren(...sections(kv, timeline));
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
      content.replaceChildren(h('p', { class: 'empty' }, error.message));
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

function sections(kv, timeline) {
  const { blocks, tokens, block_bytes: size } = kv;
  const all = tokens.computed + tokens.memory + tokens.store;
  return [
    h('h1', { class: 'unseen' }, 'Cache'),
    h('dl', { class: 'cards' },
      card('Memory', bytes(blocks.total * size), `${counted(blocks.total, 'block')} of ${counted(kv.block_tokens, 'token')}, ${kv.format}`),
      card('Held', percent(blocks.used / blocks.total), `${counted(blocks.used, 'block')} by running sequences`),
      card('Kept', percent(blocks.cached / blocks.total), `${counted(blocks.cached, 'block')} for whoever begins alike`),
      card('Found in memory', all ? percent(tokens.memory / all) : '–', `${counted(tokens.memory, 'prompt token')}`),
      card('Found in the store', all ? percent(tokens.store / all) : '–', `${counted(tokens.store, 'prompt token')}`),
      card('Computed', all ? percent(tokens.computed / all) : '–', `${counted(tokens.computed, 'prompt token')}`)),
    section('Blocks in memory', level([
      ['is-decode', blocks.used, 'held'], ['is-wait', blocks.cached, 'kept'], ['', blocks.free, 'free'],
    ], blocks.total)),
    section('Blocks in the store', kv.store ? storeFacts(kv.store) : h('p', { class: 'empty' }, 'There is none: serve with --kv-disk-dir to keep prefixes across restarts.')),
    section('Prefixes in memory', tree(kv)),
    section('What prompts found', prompts(timeline)),
  ];
}

function section(title, content) {
  return h('section', { class: 'section' }, h('h2', {}, title), h('div', { class: 'sheet' }, content));
}

function level(parts, total) {
  const bar = h('div', { class: 'level' });
  for (const [name, many] of parts) {
    const part = h('i', { class: name });
    part.style.width = `${(100 * many) / Math.max(1, total)}%`;
    bar.append(part);
  }
  const words = parts.map(([, many, what]) => `${count(many)} ${what}`).join(' · ');
  return h('div', { class: 'share' }, bar, h('p', { class: 'muted' }, words));
}

function storeFacts(store) {
  const misses = Object.entries(store.misses).filter(([, many]) => many > 0).map(([why, many]) => `${count(many)} ${why}`);
  const facts = [
    ['Blocks', `${count(store.blocks)} in ${bytes(store.used_bytes)} of ${bytes(store.budget_bytes)}`],
    ['Loaded', `${counted(store.loaded, 'block')}, ${bytes(store.read_bytes)} read`],
    ['Saved', `${counted(store.saved, 'block')}, ${bytes(store.written_bytes)} written; ${count(store.deduplicated)} were there already`],
    ['Missed', misses.length ? misses.join(', ') : 'nothing'],
    ['Given up for others', counted(store.evicted, 'block')],
  ];
  return h('dl', { class: 'facts' }, facts.map(([name, what]) => [h('dt', {}, name), h('dd', {}, what)]));
}

/** Runs of blocks, each below the one that it continues. */
function tree({ runs, left_out: leftOut }) {
  if (!runs.length) return h('p', { class: 'empty' }, 'No prompt has been computed yet.');
  const items = runs.map((run) => h('li', {}, line(run)));
  const root = h('ul', { class: 'tree', tabindex: 0, 'aria-label': 'Prefixes' });
  runs.forEach(({ parent }, index) => {
    const above = parent === null ? root : listIn(items[parent]);
    above.append(items[index]);
  });
  if (leftOut) root.append(h('li', { class: 'muted' }, `and ${count(leftOut)} more`));
  return root;
}

function listIn(item) {
  const list = item.querySelector(':scope > ul') ?? h('ul');
  item.append(list);
  return list;
}

function line({ blocks, tokens, holders, stored, space }) {
  const bar = h('i');
  bar.style.width = `${4 + (200 * Math.min(tokens, WIDEST)) / WIDEST}px`;
  const words = [holders ? `held by ${counted(holders, 'sequence')}` : 'kept'];
  if (stored !== null) words.push(onDisk(stored, blocks));
  if (space) words.push(`space ${space.slice(0, 3)}`);
  return h('div', { class: holders ? 'run held' : 'run' }, bar, h('span', {}, counted(tokens, 'token')),
    h('span', { class: 'muted' }, `${counted(blocks, 'block')}, ${words.join(', ')}`));
}

function onDisk(stored, blocks) {
  if (!stored) return 'not on disk';
  return stored === blocks ? 'on disk too' : `${count(stored)} on disk too`;
}

function prompts({ sequences }) {
  const recent = [...sequences.values()].filter(({ prompt }) => prompt !== null).slice(-MOST_PROMPTS).reverse();
  if (!recent.length) return h('p', { class: 'empty' }, 'No prompt has come lately.');
  const head = ['Sequence', 'Prompt', 'In memory', 'In the store', 'Computed'];
  return h('div', { class: 'scrolls', tabindex: 0, role: 'group', 'aria-label': 'Prompts' }, h('table', { class: 'figures-table' },
    h('thead', {}, h('tr', {}, head.map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col', class: 'words' }, 'Why'))),
    h('tbody', {}, recent.map((sequence) => {
      const found = sequence.cached ?? 0;
      const memory = Math.min(sequence.inMemory ?? 0, found);
      return h('tr', {}, [`#${sequence.id}`, count(sequence.prompt), count(memory), count(found - memory), count(sequence.prompt - found)]
        .map((cell) => h('td', {}, cell)), h('td', { class: 'words' }, why(sequence, found)));
    }))));
}

/** Why so much of a prompt was computed. */
export function why({ prompt, cache, started, stored }, found) {
  if (started === undefined) return 'waits for its turn';
  if (!cache) return 'asked not to take over what is known';
  if (found >= prompt - 1) return 'all of it is known; the last token is always computed';
  if (found === 0 && stored === 0) return 'nobody has begun like this, or it had to make room';
  if (found < stored) return 'the store did not give all that it had';
  return `goes on in its own way after ${counted(found, 'token')}`;
}
