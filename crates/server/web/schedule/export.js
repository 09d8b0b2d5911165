// What can be taken away: the picture, and what the engine told, which `andante simulate` reads.

import { download } from '../dom.js';
import { draw, heightOf, palette } from './draw.js';
import { SvgPen } from './pen.js';

export function exportSvg(timeline, view, width, font) {
  const colours = palette();
  const pen = new SvgPen(width, heightOf(timeline, view), font, colours.surface);
  draw(pen, timeline, view, width, colours);
  download('andante-schedule.svg', 'image/svg+xml', pen.toString());
}

/** All that is remembered, in the form of `GET /timeline`. Numbers and pseudonyms: what was said is not in it. */
export function exportLog({ state, missed, moments }) {
  download('andante-schedule.json', 'application/json', JSON.stringify({ ...state, missed, moments }));
}
