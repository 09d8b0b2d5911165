// Why a token came when it came.

import { counted, duration } from '../format.js';

/** What a step did beside decoding, in words. */
export function work(step) {
  const parts = [];
  for (const { id, tokens } of step.prefill) parts.push(`${counted(tokens, 'prompt token')} of #${id}`);
  if (step.io?.load) parts.push(`${counted(step.io.load.blocks, 'block')} loaded for #${step.io.load.id}`);
  if (step.io?.save) parts.push(`${counted(step.io.save.blocks, 'block')} saved`);
  return parts;
}

/** Who caused a gap: what its steps did for others, or what else took the time. */
export function cause(timeline, { id, from, to, step }) {
  const steps = timeline.within(from + 1, to).filter((other) => other.from >= from);
  const others = [];
  for (const other of steps) {
    others.push(...work(other).filter((words) => !words.endsWith(`of #${id}`)));
  }
  const late = step.actual > 1.5 * step.predicted && step.actual - step.predicted > 5_000;
  if (late) {
    return `took ${duration(step.actual)}, ${duration(step.predicted)} were foretold: something else held the machine`;
  }
  const between = to - from - steps.reduce((sum, other) => sum + other.actual, 0);
  if (between > (to - from) / 2) return 'time between steps: a late store, a mask, or a waiting reader';
  if (others.length > 2) return `${others.slice(0, 2).join(', ')} and ${others.length - 2} more`;
  if (others.length) return others.join(', ');
  return step.rows > 1 ? `${counted(step.rows, 'answer')} side by side` : 'its own step alone';
}

/** The longest gap between two tokens of one sequence in some steps. */
export function longestGap(steps) {
  let longest = null;
  for (const step of steps) {
    for (const gap of step.gaps) if (!longest || gap.us > longest.us) longest = gap;
  }
  return longest;
}

/** The longest gaps, one for each step, longest first. */
export function longestGaps(steps, most) {
  const longest = steps.map((step) => longestGap([step])).filter(Boolean);
  return longest.sort((a, b) => b.us - a.us).slice(0, most);
}
