// What is loaded, how much it takes, and how fast it can be here.

import { json } from './api.js';
import { h } from './dom.js';
import { bytes, count, counted, duration, rate } from './format.js';
import { card } from './schedule/panels.js';

export async function modelView(main, _, signal) {
  const content = h('div', {});
  main.replaceChildren(h('div', { class: 'figures-page' }, content));
  try {
    const [{ data: [model] }, details, scheduler] = await Promise.all(
      ['/v1/models', '/model', '/scheduler'].map((path) => json(path, { signal })));
    content.replaceChildren(...sections(model, details, scheduler));
  } catch (error) {
    if (!signal.aborted) content.replaceChildren(h('p', { class: 'empty' }, error.message));
  }
}

function sections({ id, capabilities }, model, scheduler) {
  const { cost } = scheduler;
  const alone = cost.decode_us + cost.row_us;
  const measured = scheduler.counts.steps > 0;
  return [
    h('h1', { class: 'unseen' }, 'Model'),
    h('dl', { class: 'cards' },
      card('Parameters', `${count(model.parameters / 1e6)} M`, `${model.name ?? id}, served as ${id}`),
      card('Weights', bytes(model.weight_bytes), `${((8 * model.weight_bytes) / model.parameters).toFixed(1)} bits each, ${model.architecture}`),
      card('Context', count(model.context), `tokens of one session; trained for ${count(model.context_trained)}`),
      card('KV memory', bytes(model.kv.bytes), `${bytes(model.kv.bytes_per_token)} a token, ${model.kv.format}`),
      card('One answer', measured ? `${rate(1e6 / alone)} tok/s` : '–', measured ? 'by the cost model, as fitted so far' : 'nothing measured yet'),
      card('Weights read', measured ? `${(model.weight_bytes / 1e3 / alone).toFixed(1)} GB/s` : '–', 'by an answer alone: the ceiling is what memory gives')),
    section('Shape', facts([
      ['Layers', count(model.layers)],
      ['Width', count(model.hidden)],
      ['Heads', `${count(model.heads)}, of keys and values ${count(model.kv_heads)}, ${count(model.head_dim)} wide`],
      ['Attention', model.windows.length ? model.windows.map(({ window, layers }) => `${counted(layers, 'layer')} looking back ${window === null ? 'to the beginning' : `${count(window)} tokens`}`).join(', ') : '–'],
      ['Vocabulary', `${count(model.vocab)} tokens`],
      ['Can', capabilities.join(', ')],
      ['Dialect', model.dialect],
    ])),
    section('Machine', facts([
      ['Backend', model.backend],
      ['KV blocks', `${count(model.kv.blocks)} of ${count(model.kv.block_tokens)} tokens, ${bytes(model.kv.block_bytes)} each`],
      ['Scheduler', scheduler.config],
      ['A step of answers', `${duration(cost.decode_us)} and ${duration(cost.row_us)} for each`],
      ['A prompt token', `${duration(cost.token_us)}: at most ${rate(1e6 / Math.max(1e-9, cost.token_us))} a second`],
    ])),
    model.formats.length ? section('Formats', formats(model)) : null,
  ].filter(Boolean);
}

function section(title, content) {
  return h('section', { class: 'section' }, h('h2', {}, title), h('div', { class: 'sheet' }, content));
}

function facts(list) {
  return h('dl', { class: 'facts' }, list.map(([name, what]) => [h('dt', {}, name), h('dd', {}, what)]));
}

function formats({ formats: all, weight_bytes: total }) {
  return h('div', { class: 'share' }, all.map(({ format, tensors, bytes: size }) => {
    const bar = h('div', { class: 'level' }, h('i', { class: 'is-decode' }));
    bar.firstChild.style.width = `${(100 * size) / total}%`;
    return h('div', {}, h('div', { class: 'name' }, h('span', {}, format), h('span', { class: 'muted' }, `${counted(tensors, 'tensor')}, ${bytes(size)}`)), bar);
  }));
}
