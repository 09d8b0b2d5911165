// The picture: how long steps took beside the bound, who was in them, and who waited, over one axis of time.

import { count, duration } from '../format.js';
import { longestGap } from './causes.js';

const GUTTER = 88;
const RIGHT = 12;
const STEPS = { top: 14, height: 132 };
const LANE = 26;
const LANES_TOP = STEPS.top + STEPS.height + 22;
const QUEUE = 34;
const AXIS = 24;
const LEAST_LANES = 4;

/** The colours of the page, by what they mean. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const names = ['ground', 'surface', 'raised', 'ink', 'muted', 'line', 'accent', 'decode', 'prefill', 'io', 'wait', 'bound'];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** How many lanes the sequences of a span take. */
function lanesOf(sequences) {
  return Math.max(LEAST_LANES, ...sequences.map(({ lane }) => lane + 1));
}

function visible(timeline, { from, to }) {
  return [...timeline.sequences.values()].filter(({ arrived, ended }) => arrived <= to && (ended ?? Infinity) >= from);
}

/** How high the picture is. */
export function heightOf(timeline, view) {
  return LANES_TOP + lanesOf(visible(timeline, view)) * LANE + 16 + QUEUE + AXIS;
}

/** The time under a pixel, and how many µs a pixel is. */
export function scaleOf({ from, to }, width) {
  const perPixel = (to - from) / Math.max(1, width - GUTTER - RIGHT);
  return { perPixel, timeAt: (x) => from + (x - GUTTER) * perPixel };
}

/** Draws the span `view` of a timeline; `view.step` is marked. */
export function draw(pen, timeline, view, width, colours) {
  const { perPixel } = scaleOf(view, width);
  const x = (time) => GUTTER + (Math.min(Math.max(time, view.from), view.to) - view.from) / perPixel;
  const picture = {
    pen, timeline, view, x, colours, perPixel,
    right: width - RIGHT,
    steps: timeline.within(view.from, view.to),
    sequences: visible(timeline, view),
  };
  picture.lanes = lanesOf(picture.sequences);
  picture.bottom = LANES_TOP + picture.lanes * LANE;
  axis(picture);
  stepTimes(picture);
  lanes(picture);
  queue(picture);
  if (view.step) mark(picture);
}

function axis({ pen, view, x, right, bottom, colours, timeline }) {
  const span = view.to - view.from;
  const aim = span / Math.max(2, (right - GUTTER) / 110);
  const unit = 10 ** Math.floor(Math.log10(aim));
  const every = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= aim);
  const end = bottom + 16 + QUEUE;
  const now = timeline.steps.at(-1)?.to ?? view.to;
  for (let time = now - Math.floor((now - view.from) / every) * every; time <= view.to; time += every) {
    pen.line(x(time), STEPS.top, x(time), end, colours.line);
    const words = Math.abs(now - time) < 1 ? 'latest' : `${time > now ? '+' : '−'}${duration(Math.abs(now - time))}`;
    pen.text(x(time), end + 12, words, colours.muted, { anchor: x(time) > right - 30 ? 'end' : 'middle' });
  }
}

function stepTimes({ pen, timeline, steps, x, right, colours, perPixel }) {
  const { bound } = timeline;
  const longest = steps.reduce((most, { actual, predicted }) => Math.max(most, actual, predicted), 0);
  const top = Math.max(longest, bound ?? 0, 1_000) * 1.12;
  const base = STEPS.top + STEPS.height;
  const high = (us) => (us / top) * STEPS.height;
  pen.text(GUTTER - 8, STEPS.top + 2, duration(top), colours.muted, { anchor: 'end' });
  pen.text(GUTTER - 8, base - 4, '0', colours.muted, { anchor: 'end' });
  pen.text(8, STEPS.top + STEPS.height / 2, 'step time', colours.muted);
  for (const step of steps) {
    const left = x(step.from);
    const width = Math.max(1, x(step.to) - left - (step.actual > 4 * perPixel ? 1 : 0));
    let y = base;
    for (const [us, colour] of shares(timeline, step)) {
      y -= high(us);
      pen.rect(left, y, width, high(us), colours[colour]);
    }
    if (width > 3) pen.line(left, base - high(step.predicted), left + width, base - high(step.predicted), colours.ink, { width: 1.5 });
  }
  pen.line(GUTTER, base, right, base, colours.muted);
  if (bound !== null) {
    const y = base - high(bound);
    pen.line(GUTTER, y, right, y, colours.bound, { width: 1.5, dash: [6, 4] });
    pen.text(right, y - 8, `T_stall ${duration(bound)}`, colours.bound, { anchor: 'end', weight: 600 });
  }
}

/** The measured time of a step by what it went to: I/O as measured, prompts by what the cost model says of them. */
function shares({ state }, { actual, ioTime, prefill, rows }) {
  const rest = Math.max(0, actual - ioTime);
  const cost = state?.cost;
  const tokens = prefill.reduce((sum, part) => sum + part.tokens, 0);
  let prompts = 0;
  if (tokens && !rows) prompts = rest;
  else if (tokens && cost) {
    const work = prefill.reduce((sum, { start, tokens: many }) => sum + cost.token_us * many + cost.attend_us * many * (start + (many + 1) / 2), 0);
    prompts = Math.min(rest, work);
  }
  return [[ioTime, 'io'], [rest - prompts, 'decode'], [prompts, 'prefill']];
}

function lanes(picture) {
  const { pen, sequences, steps, right, lanes: many, colours } = picture;
  for (let lane = 0; lane < many; lane += 1) {
    const y = LANES_TOP + lane * LANE;
    if (lane % 2 === 0) pen.rect(GUTTER, y, right - GUTTER, LANE, colours.raised);
  }
  for (const sequence of sequences) life(picture, sequence);
  const laneOf = new Map(sequences.map(({ id, lane }) => [id, lane]));
  for (const step of steps) turns(picture, step, laneOf);
  for (const step of steps) gaps(picture, step, laneOf);
}

/** Where a sequence waits, is, and ends. */
function life({ pen, x, colours, view, timeline }, sequence) {
  const { lane, arrived, admitted, ended, how, tenant } = sequence;
  const y = LANES_TOP + lane * LANE;
  const middle = y + LANE / 2;
  const last = ended ?? timeline.steps.at(-1)?.to ?? view.to;
  const until = admitted ?? last;
  pen.line(x(arrived), middle, x(until), middle, colours.wait, { width: 3, dash: [2, 3] });
  pen.line(x(until), middle, x(last), middle, colours.line, { width: 2 });
  for (const { from, to } of sequence.parked) pen.line(x(from), middle, x(to ?? last), middle, colours.wait, { width: 6 });
  const isCurrent = ended === undefined || ended >= view.to;
  if (isCurrent) {
    pen.text(8, middle, `#${sequence.id}`, colours.ink, { weight: 600 });
    if (tenant && timeline.state?.tenants.length > 1) pen.text(GUTTER - 8, middle, timeline.state?.own === tenant ? 'you' : tenant.slice(0, 3), colours.muted, { anchor: 'end', size: 10 });
  } else if (ended > view.from) {
    const sign = { stop: '●', length: '●', cancelled: '×', failed: '!' }[how];
    pen.text(x(ended) + 3, middle, sign, how === 'failed' ? colours.bound : colours.muted, { size: how === 'cancelled' || how === 'failed' ? 13 : 8 });
  }
}

/** The rows and ranges of a step, each in its lane. */
function turns({ pen, x, colours, perPixel }, step, laneOf) {
  const left = x(step.from);
  const width = Math.max(1, x(step.to) - left - (step.actual > 4 * perPixel ? 1 : 0));
  for (const id of step.decode) {
    if (laneOf.has(id)) pen.rect(left, LANES_TOP + laneOf.get(id) * LANE + 8, width, LANE - 16, colours.decode);
  }
  for (const { id, tokens } of step.prefill) {
    if (!laneOf.has(id)) continue;
    const y = LANES_TOP + laneOf.get(id) * LANE;
    pen.rect(left, y + 4, width, LANE - 8, colours.prefill);
    if (width > 30) pen.text(left + width / 2, y + LANE / 2, count(tokens), colours.surface, { anchor: 'middle', weight: 600, size: 10.5 });
  }
  if (step.io?.load && laneOf.has(step.io.load.id)) {
    pen.rect(left, LANES_TOP + laneOf.get(step.io.load.id) * LANE + 4, Math.max(1, step.ioTime / perPixel), LANE - 8, colours.io);
  }
}

/** Gaps that are longer than the bound, by more than what counts as broken. */
function gaps({ pen, timeline, x, colours }, step, laneOf) {
  const { bound } = timeline;
  if (bound === null) return;
  for (const { id, from, to, us } of step.gaps) {
    if (us <= 1.1 * bound || !laneOf.has(id)) continue;
    const y = LANES_TOP + laneOf.get(id) * LANE + LANE - 3;
    pen.line(x(from), y, x(to), y, colours.bound, { width: 2.5 });
  }
}

function queue({ pen, steps, x, right, bottom, colours }) {
  const top = bottom + 16;
  const base = top + QUEUE;
  const most = steps.reduce((high, { queued, resident }) => Math.max(high, queued, resident), 1);
  pen.text(8, top + QUEUE / 2 - 6, 'queue', colours.muted);
  pen.text(8, top + QUEUE / 2 + 7, 'running', colours.decode);
  pen.text(GUTTER - 8, top + 6, String(most), colours.muted, { anchor: 'end' });
  let before = null;
  for (const step of steps) {
    const [left, width] = [x(step.from), Math.max(1, x(step.to) - x(step.from))];
    const high = (many) => (many / most) * (QUEUE - 4);
    if (step.queued) pen.rect(left, base - high(step.queued), width, high(step.queued), colours.wait);
    const y = base - high(step.resident);
    pen.line(left, y, left + width, y, colours.decode, { width: 1.5 });
    if (before !== null && before !== y) pen.line(left, before, left, y, colours.decode, { width: 1.5 });
    before = y;
  }
  pen.line(GUTTER, base, right, base, colours.line);
}

function mark({ pen, x, view, bottom, colours }) {
  const { from, to } = view.step;
  pen.line(x(from), STEPS.top, x(from), bottom + 16 + QUEUE, colours.ink);
  pen.line(x(to), STEPS.top, x(to), bottom + 16 + QUEUE, colours.ink);
}

/** The picture in words. */
export function describe(timeline, view) {
  const steps = timeline.within(view.from, view.to);
  const gap = longestGap(steps);
  const bound = timeline.bound === null ? 'no stall bound' : `stall bound ${duration(timeline.bound)}`;
  return `Schedule of ${duration(view.to - view.from)}: ${count(steps.length)} steps, ${count(visible(timeline, view).length)} sequences, `
    + `${gap ? `longest gap between two tokens ${duration(gap.us)}` : 'no gaps'}, ${bound}. Arrow keys go from step to step.`;
}
