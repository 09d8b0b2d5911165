// What stands around the picture: figures of the span that is shown, the longest gaps, the cost model beside what was measured, tenants.

import { h } from '../dom.js';
import { count, counted, duration, percent, rate } from '../format.js';
import { cause, longestGap, longestGaps, work } from './causes.js';

const MOST_GAPS = 8;

/** A figure with a name and a remark. */
export function card(name, figure, remark = '', over = false) {
  return h('div', { class: over ? 'card over' : 'card' }, h('dt', {}, name), h('dd', {}, figure, h('small', { title: remark }, remark)));
}

export function cards(timeline, view) {
  const steps = timeline.within(view.from, view.to);
  const { bound, state } = timeline;
  const seconds = Math.max(1e-6, ((steps.at(-1)?.to ?? 0) - (steps[0]?.from ?? 0)) / 1e6);
  const tokens = steps.reduce((sum, step) => sum + step.rows, 0);
  const prompts = steps.reduce((sum, step) => sum + step.prefill.reduce((all, part) => all + part.tokens, 0), 0);
  const gap = longestGap(steps);
  const over = bound !== null && gap && gap.us > 1.1 * bound;
  const counts = state?.counts;
  const kept = state?.stall.kept_us;
  return [
    card('Stall bound', bound === null ? 'none' : duration(bound),
      kept ? `${duration(kept)} can be kept here` : state?.stall.auto ? 'fits this machine’s speed' : 'as asked'),
    card('Longest gap', gap ? duration(gap.us) : '–', gap ? `#${gap.id}: ${cause(timeline, gap)}` : 'between two tokens of an answer', over),
    card('Answers', `${rate(tokens / seconds)} tok/s`, counts ? `${counted(counts.active, 'answer')} running` : ''),
    card('Prompts', `${rate(prompts / seconds)} tok/s`, counts ? `${counted(counts.prefilling, 'prompt')} being read` : ''),
    card('Waiting', counts ? count(counts.queued) : '–', 'requests without a place'),
    card('Steps', `${rate(steps.length / seconds)} /s`, steps.length ? `half of them within ${duration(median(steps.map((step) => step.actual)))}` : ''),
  ];
}

function median(numbers) {
  return numbers.sort((a, b) => a - b)[numbers.length >> 1];
}

/** A step in words, for whoever points at it. */
export function inspect(step) {
  if (!step) return [h('p', { class: 'muted' }, 'Point at a step, or go from one to the next with the arrow keys.')];
  const did = [step.rows ? `${counted(step.rows, 'token')} generated` : null, ...work(step)].filter(Boolean);
  const gap = longestGap([step]);
  return [
    h('p', {}, h('strong', {}, `Step ${count(step.no)}`), ` took ${duration(step.actual)}, ${duration(step.predicted)} foretold`,
      step.contended ? ', beside running answers' : '', step.floorLimited ? ', with the smallest prompt part that is worth a step' : ''),
    h('p', {}, did.join(' · ') || 'nothing'),
    h('p', { class: 'muted' }, `${gap ? `Longest gap ${duration(gap.us)} (#${gap.id})` : 'No gap'} · ${count(step.queued)} waiting · ${count(step.resident)} running · ${count(step.used)} KV blocks held`),
  ];
}

export function gapTable(timeline, view) {
  const gaps = longestGaps(timeline.within(view.from, view.to), MOST_GAPS);
  if (!gaps.length) return h('p', { class: 'empty' }, 'No answer has been running.');
  const { bound } = timeline;
  return h('div', { class: 'scrolls', tabindex: 0, role: 'group', 'aria-label': 'Longest gaps' }, h('table', { class: 'figures-table', id: 'gaps' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Sequence'), h('th', { scope: 'col' }, 'Gap'), h('th', { scope: 'col' }, 'Of the bound'), h('th', { scope: 'col', class: 'words' }, 'Caused by'))),
    h('tbody', {}, gaps.map((gap) => h('tr', { 'data-id': gap.id, 'data-us': gap.us, 'data-step': gap.step.no },
      h('td', {}, `#${gap.id}`), h('td', {}, duration(gap.us)),
      h('td', {}, bound === null ? '–' : percent(gap.us / bound)), h('td', { class: 'words' }, cause(timeline, gap)))))));
}

const COSTS = [
  ['decode_us', 'a step of answers', 1],
  ['prefill_us', 'a step of prompts', 1],
  ['mixed_us', 'a step of both', 1],
  ['token_us', 'each prompt token', 1],
  ['row_us', 'each answer', 1],
  ['attend_us', 'each 1,000 tokens that a prompt token looks back on', 1_000],
  ['context_us', 'each 1,000 tokens of an answer’s context', 1_000],
];

export function costTable(timeline, view) {
  const cost = timeline.state?.cost;
  if (!cost) return h('p', { class: 'empty' }, 'Not known yet.');
  const steps = timeline.within(view.from, view.to);
  const sum = (name) => steps.reduce((all, step) => all + step[name], 0);
  const within = steps.filter(({ actual, predicted }) => Math.abs(actual - predicted) <= 0.2 * predicted).length;
  const margins = cost.margin_permille.map((permille) => percent(permille / 1000 - 1)).join(', ');
  return h('div', {},
    h('table', { class: 'figures-table' }, h('caption', { class: 'unseen' }, 'What a step costs'), h('tbody', {}, COSTS.map(([name, words, factor]) => h('tr', {},
      h('th', { scope: 'row' }, words), h('td', {}, duration(factor * cost[name])))))),
    h('p', { class: 'remark' }, steps.length
      ? `${percent(sum('actual') / Math.max(1, sum('predicted')))} of the foretold time was taken; ${percent(within / steps.length)} of the steps were within a fifth of it. Margins on answers, prompts, both: ${margins}.`
      : `Margins on answers, prompts, both: ${margins}.`));
}

export function tenantList(state) {
  const tenants = state?.tenants ?? [];
  if (!tenants.length) return h('p', { class: 'empty' }, 'Nobody has asked for anything.');
  const total = tenants.reduce((sum, tenant) => sum + tenant.service_us, 0) || 1;
  const busiest = tenants.toSorted((a, b) => b.service_us - a.service_us).slice(0, 12);
  return h('div', { class: 'share' }, busiest.map(({ name, weight, service_us: service, queued, resident }) => {
    const share = service / total;
    const bar = h('div', { class: 'level' }, h('i', { class: 'is-decode' }));
    bar.firstChild.style.width = `${100 * share}%`;
    return h('div', {},
      h('div', { class: 'name' },
        h('span', {}, name === state.own ? 'You' : `Tenant ${name.slice(0, 3)}`, weight === 1 ? '' : `, weight ${weight}`),
        h('span', { class: 'muted' }, `${duration(service)} · ${percent(share)} · ${count(resident)} running, ${count(queued)} waiting`)), bar);
  }));
}
