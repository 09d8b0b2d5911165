// What can be taken away: the picture, and the requests as a trace that `andante simulate` reads.

import { download } from '../dom.js';
import { draw, heightOf, palette } from './draw.js';
import { SvgPen } from './pen.js';

export function exportSvg(timeline, view, width, font) {
  const colours = palette();
  const pen = new SvgPen(width, heightOf(timeline, view), font, colours.surface);
  draw(pen, timeline, view, width, colours);
  download('andante-schedule.svg', 'image/svg+xml', pen.toString());
}

/** A line for each request that has ended with an answer: when it came, in ms, and how many tokens it had. What they were is not in it. */
export function traceOf(timeline) {
  const ended = [...timeline.sequences.values()]
    .filter(({ prompt, ended: end, tokens }) => prompt !== null && end !== undefined && tokens > 0)
    .sort((a, b) => a.arrived - b.arrived);
  const start = ended[0]?.arrived ?? 0;
  const line = ({ arrived, prompt, tokens }) => JSON.stringify({ timestamp: (arrived - start) / 1e3, input_length: prompt, output_length: tokens });
  return ended.map((sequence) => `${line(sequence)}\n`).join('');
}

export function exportTrace(timeline) {
  download('andante-trace.jsonl', 'application/x-ndjson', traceOf(timeline));
}
