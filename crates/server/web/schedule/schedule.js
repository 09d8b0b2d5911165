// The schedule, live: a stream of the engine's moments, a picture of a span of time, and what there is to say about it.

import { ask, events } from '../api.js';
import { h, icon, iconButton } from '../dom.js';
import { duration } from '../format.js';
import { describe, draw, heightOf, palette, scaleOf } from './draw.js';
import { exportSvg, exportLog } from './export.js';
import { cards, costTable, gapTable, inspect, tenantList } from './panels.js';
import { CanvasPen } from './pen.js';
import { Timeline } from './timeline.js';

const LEAST_SPAN = 20e3;
const MOST_SPAN = 600e6;
/** Between two tries to reach the server, in ms. */
const RETRY_MS = 2_000;
/** The picture is drawn so often at most, the tables less. In ms. */
const DRAW_EVERY = 100;
const TABLES_EVERY = 1_000;

export function scheduleView(main, _, signal) {
  return new Schedule(main, signal).run();
}

class Schedule {
  timeline = new Timeline();
  /** Length of the span that is shown, in µs. */
  span = 10e6;
  /** Where it ends while nothing moves; `null` while it follows. */
  frozenAt = null;
  step = null;
  drawn = 0;
  tabled = 0;

  constructor(main, signal) {
    this.signal = signal;
    this.canvas = h('canvas', { tabindex: 0, role: 'img' });
    this.cards = h('dl', { class: 'cards' });
    this.inspected = h('div', { class: 'inspect', role: 'status' }, inspect(null));
    this.gaps = h('div', { class: 'sheet' });
    this.costs = h('div', { class: 'sheet' });
    this.tenants = h('div', { class: 'sheet' });
    this.spanWords = h('span', { class: 'span' });
    this.pauseButton = iconButton('pause', 'Pause', () => this.pause(this.frozenAt === null), { 'aria-pressed': 'false' });
    this.scroller = h('div', { class: 'figures-page' }, h('div', {},
      this.cards,
      h('div', { class: 'tools', role: 'toolbar', 'aria-label': 'Timeline' }, h('h1', {}, 'Who got which turn'),
        this.pauseButton,
        iconButton('closer', 'Zoom in', () => this.zoom(0.5)),
        this.spanWords,
        iconButton('farther', 'Zoom out', () => this.zoom(2)),
        h('button', { type: 'button', class: 'quiet', onclick: () => this.export('svg') }, icon('save'), 'SVG'),
        h('button', { type: 'button', class: 'quiet', title: 'What happened, for andante simulate', onclick: () => exportLog(this.timeline) }, icon('save'), 'Log')),
      h('p', { class: 'why' }, 'A step computes one token of every running answer, and as much of a prompt as fits below the bound. So a long prompt is read piece by piece, and no answer waits for it.'),
      h('div', { class: 'sheet timeline' }, this.canvas, legend(), this.inspected),
      section('Longest gaps between two tokens', this.gaps),
      h('div', { class: 'columns' }, section('What a step costs, as measured so far', this.costs), section('Tenants', this.tenants))));
    main.replaceChildren(this.scroller);
    this.listen();
  }

  listen() {
    const { canvas, signal } = this;
    canvas.addEventListener('pointermove', (event) => this.point(event), { signal });
    canvas.addEventListener('pointerleave', () => this.frozenAt === null && this.select(null), { signal });
    canvas.addEventListener('pointerdown', (event) => this.grab(event), { signal });
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.scale.timeAt(event.offsetX));
      else this.pan((event.deltaX || event.deltaY) * this.scale.perPixel);
    }, { signal, passive: false });
    canvas.addEventListener('keydown', (event) => this.press(event), { signal });
    const redraw = () => this.draw(true);
    addEventListener('theme', redraw, { signal });
    const observer = new ResizeObserver(redraw);
    observer.observe(this.scroller);
    signal.addEventListener('abort', () => observer.disconnect());
  }

  /** Follows the server until the view is left. */
  async run() {
    this.draw(true);
    while (!this.signal.aborted) {
      try {
        const since = this.timeline.steps.at(-1)?.to;
        const response = await ask(`/timeline/events${since === undefined ? '' : `?since_us=${since + 1}`}`, { signal: this.signal });
        for await (const { event, data } of events(response)) {
          this.take(event, JSON.parse(data));
        }
      } catch (error) {
        if (this.signal.aborted) return;
        if (error.status === 401) return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  take(event, data) {
    // A server that has been started again counts from 0.
    if (event === 'state' && data.now_us < (this.timeline.steps.at(-1)?.to ?? 0)) this.timeline = new Timeline();
    this.timeline.take(event, data);
    if (!document.hidden) requestAnimationFrame(() => this.draw(false));
  }

  get view() {
    const last = this.timeline.steps.at(-1)?.to ?? 0;
    const to = this.frozenAt ?? Math.max(last, this.idleUntil(last));
    return { from: to - this.span, to, step: this.step };
  }

  /** While nothing runs, time goes on as the state says. */
  idleUntil(last) {
    const { state } = this.timeline;
    if (!state) return last;
    return state.counts.resident ? last : Math.max(last, state.now_us);
  }

  get scale() {
    return scaleOf(this.view, this.canvas.clientWidth);
  }

  draw(now) {
    const time = performance.now();
    if (!now && time - this.drawn < DRAW_EVERY) return;
    this.drawn = time;
    const { canvas, timeline, view } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const height = Math.max(heightOf(timeline, view), this.height ?? 0);
    this.height = height;
    canvas.style.height = `${height}px`;
    draw(new CanvasPen(canvas, width, height, getComputedStyle(document.body).fontFamily), timeline, view, width, palette());
    this.spanWords.textContent = duration(this.span);
    if (now || time - this.tabled >= TABLES_EVERY) this.table(time);
  }

  table(time) {
    const { timeline, view } = this;
    this.tabled = time;
    this.canvas.setAttribute('aria-label', describe(timeline, view));
    this.cards.replaceChildren(...cards(timeline, view));
    this.gaps.replaceChildren(gapTable(timeline, view));
    this.costs.replaceChildren(costTable(timeline, view));
    this.tenants.replaceChildren(tenantList(timeline.state));
    // For whoever asks what is shown.
    Object.assign(this.canvas.dataset, { from: view.from, to: view.to, steps: timeline.steps.length });
  }

  pause(stop) {
    this.frozenAt = stop ? this.view.to : null;
    if (!stop) this.select(null);
    this.pauseButton.setAttribute('aria-pressed', String(stop));
    this.pauseButton.setAttribute('aria-label', stop ? 'Go on' : 'Pause');
    this.pauseButton.title = stop ? 'Go on' : 'Pause';
    this.pauseButton.replaceChildren(icon(stop ? 'play' : 'pause'));
    this.draw(true);
  }

  /** Around a time, or the end. */
  zoom(factor, around) {
    const { from, to } = this.view;
    const span = Math.min(MOST_SPAN, Math.max(LEAST_SPAN, this.span * factor));
    if (around !== undefined && this.frozenAt !== null) this.frozenAt = around + ((to - around) / (to - from)) * span;
    this.span = span;
    this.draw(true);
  }

  pan(us) {
    if (this.frozenAt === null) this.pause(true);
    this.frozenAt += us;
    this.draw(true);
  }

  point(event) {
    if (this.dragged !== undefined) return;
    const time = this.scale.timeAt(event.offsetX);
    const index = this.timeline.indexAfter(time) - 1;
    const step = this.timeline.steps[index];
    this.select(step && time - step.to < 5 * this.scale.perPixel ? step : null);
  }

  /** Drags the picture along. */
  grab(event) {
    const { canvas } = this;
    canvas.setPointerCapture(event.pointerId);
    this.dragged = event.offsetX;
    const move = ({ offsetX }) => {
      if (Math.abs(offsetX - this.dragged) < 3 && this.frozenAt === null) return;
      this.pan((this.dragged - offsetX) * this.scale.perPixel);
      this.dragged = offsetX;
    };
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', () => {
      canvas.removeEventListener('pointermove', move);
      this.dragged = undefined;
    }, { once: true });
  }

  press(event) {
    const act = {
      ' ': () => this.pause(this.frozenAt === null),
      '+': () => this.zoom(0.5),
      '=': () => this.zoom(0.5),
      '-': () => this.zoom(2),
      ArrowLeft: () => this.go(-1),
      ArrowRight: () => this.go(1),
      PageUp: () => this.pan(-this.span / 2),
      PageDown: () => this.pan(this.span / 2),
      End: () => this.pause(false),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** From step to step. */
  go(by) {
    if (this.frozenAt === null) this.pause(true);
    const { steps } = this.timeline;
    const index = this.step ? steps.indexOf(this.step) + by : this.timeline.indexAfter(this.frozenAt) - 1;
    const step = steps[Math.min(Math.max(index, 0), steps.length - 1)];
    if (!step) return;
    const { from, to } = this.view;
    if (step.from < from || step.to > to) this.frozenAt = step.to + this.span / 2;
    this.select(step);
  }

  select(step) {
    if (step === this.step) return;
    this.step = step;
    this.inspected.replaceChildren(...inspect(step));
    this.draw(false);
  }

  export(kind) {
    if (kind === 'svg') exportSvg(this.timeline, { ...this.view, step: null }, this.canvas.clientWidth, 'sans-serif');
  }
}

function section(title, content) {
  return h('section', { class: 'section' }, h('h2', {}, title), content);
}

function legend() {
  return h('p', { class: 'legend' },
    h('span', { class: 'is-decode' }, 'a token of an answer'),
    h('span', { class: 'is-prefill' }, 'a part of a prompt'),
    h('span', { class: 'is-io' }, 'KV loaded or saved'),
    h('span', { class: 'is-wait' }, 'waiting'),
    h('span', { class: 'is-bound' }, 'the bound, and gaps beyond it'));
}
