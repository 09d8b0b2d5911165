// What the engine's moments say: sequences, steps, and the gaps between tokens with their causes. Bounded, however long it goes on.
//
// Times are µs of the engine's clock. A decode row, and a range that ends its prompt, give a token when their step ends.

/** What is remembered at most. */
const MOST_STEPS = 40_000;
const MOST_US = 15 * 60e6;
/** A sequence that ended so long ago gives its lane to another. */
const LANE_FREE_AFTER_US = 1e6;

export class Timeline {
  /** What is remembered, as it was told. */
  moments = [];
  /** In order. */
  steps = [];
  /** By id; those that are remembered. */
  sequences = new Map();
  /** What the server says of itself now. */
  state = null;
  /** Moments were lost, since this page was slow. */
  missed = false;

  /** Takes an event of the server's stream. */
  take(event, data) {
    if (event === 'state') {
      this.state = data;
      return;
    }
    this.missed ||= data.missed && this.steps.length > 0;
    for (const moment of data.moments) this.add(moment);
    this.forget();
  }

  add(moment) {
    const { kind, at_us: at, id } = moment;
    this.moments.push(moment);
    if (kind === 'step') {
      this.addStep(moment);
    } else if (kind === 'arrived') {
      this.sequences.set(id, {
        id,
        lane: this.freeLane(at),
        arrived: at,
        tenant: moment.tenant,
        priority: moment.priority,
        prompt: moment.prompt_tokens,
        stored: moment.stored_tokens,
        cache: moment.cache,
        parked: [],
        tokens: 0,
      });
    } else {
      const sequence = this.sequence(id, at);
      if (kind === 'admitted') sequence.admitted = at;
      if (kind === 'started') Object.assign(sequence, { started: at, cached: moment.cached_tokens, inMemory: moment.cached_tokens });
      if (kind === 'parked') sequence.parked.push({ from: at });
      if (kind === 'unparked') this.unpark(sequence, at);
      if (kind === 'ended') Object.assign(sequence, { ended: at, how: moment.how, tokens: moment.tokens, cached: moment.cached_tokens });
    }
  }

  unpark(sequence, at) {
    const parked = sequence.parked.at(-1);
    if (parked) parked.to = at;
    // Its reader did not read; that is nobody's gap.
    sequence.lastToken = at;
  }

  /** A sequence; one that began before what is remembered is made up from what is seen of it. */
  sequence(id, at) {
    let sequence = this.sequences.get(id);
    if (!sequence) {
      sequence = { id, lane: this.freeLane(at), arrived: at, admitted: at, tenant: '', prompt: null, parked: [], tokens: 0 };
      this.sequences.set(id, sequence);
    }
    return sequence;
  }

  freeLane(at) {
    const taken = new Set();
    for (const { lane, ended } of this.sequences.values()) {
      if (ended === undefined || ended > at - LANE_FREE_AFTER_US) taken.add(lane);
    }
    let lane = 0;
    while (taken.has(lane)) lane += 1;
    return lane;
  }

  addStep(moment) {
    const step = {
      no: moment.step_no,
      from: moment.started_us,
      to: moment.started_us + moment.actual_us,
      predicted: moment.predicted_us,
      budget: moment.budget_us,
      actual: moment.actual_us,
      ioTime: moment.io_us,
      contended: moment.contended,
      floorLimited: moment.floor_limited,
      decode: moment.decode,
      prefill: moment.prefill,
      io: moment.io,
      rows: moment.rows,
      queued: moment.queued,
      resident: moment.resident,
      used: moment.blocks_used,
      cached: moment.blocks_cached,
      gaps: [],
    };
    for (const id of step.decode) this.token(id, step);
    for (const part of step.prefill) if (part.last) this.token(part.id, step);
    this.steps.push(step);
  }

  token(id, step) {
    const sequence = this.sequence(id, step.from);
    if (sequence.lastToken !== undefined) {
      step.gaps.push({ id, from: sequence.lastToken, to: step.to, us: step.to - sequence.lastToken, step });
    }
    sequence.lastToken = step.to;
    sequence.tokens += 1;
  }

  forget() {
    const { steps } = this;
    const since = (steps.at(-1)?.to ?? 0) - MOST_US;
    let old = Math.max(0, steps.length - MOST_STEPS);
    while (old < steps.length && steps[old].to < since) old += 1;
    if (old === 0) return;
    steps.splice(0, old);
    const first = steps[0]?.from ?? 0;
    for (const [id, { ended }] of this.sequences) if (ended < first) this.sequences.delete(id);
    this.moments = this.moments.filter(({ id, started_us: from }) => (id === undefined ? from >= first : this.sequences.has(id)));
  }

  /** The steps that touch a span of time. */
  within(from, to) {
    return this.steps.slice(this.indexAt(from), this.indexAfter(to));
  }

  /** The first step that is not over at a time. */
  indexAt(time) {
    return bisect(this.steps, (step) => step.to < time);
  }

  /** The first step that begins after it. */
  indexAfter(time) {
    return bisect(this.steps, (step) => step.from <= time);
  }

  /** The stall bound in force; `null` where there is none. */
  get bound() {
    return this.state?.stall.in_force_us ?? null;
  }
}

/** The first place for which `before` is false. */
function bisect(items, before) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(items[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}
