// One way to draw, on a canvas or into SVG.

/** Draws on a canvas of `width` by `height` CSS pixels. */
export class CanvasPen {
  constructor(canvas, width, height, font) {
    const scale = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
    this.context = canvas.getContext('2d');
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.font = font;
  }

  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }

  line(x1, y1, x2, y2, stroke, { width = 1, dash = [] } = {}) {
    const { context } = this;
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
  }

  text(x, y, words, fill, { size = 11, anchor = 'start', weight = 400 } = {}) {
    const { context } = this;
    context.font = `${weight} ${size}px ${this.font}`;
    context.textAlign = anchor === 'middle' ? 'center' : anchor;
    context.textBaseline = 'middle';
    context.fillStyle = fill;
    context.fillText(words, x, y);
  }
}

/** Writes SVG. */
export class SvgPen {
  parts = [];

  constructor(width, height, font, ground) {
    this.size = { width, height };
    this.font = font;
    this.rect(0, 0, width, height, ground);
  }

  rect(x, y, width, height, fill) {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${fill}"/>`);
  }

  line(x1, y1, x2, y2, stroke, { width = 1, dash = [] } = {}) {
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(' ')}"` : '';
    this.parts.push(`<line x1="${short(x1)}" y1="${short(y1)}" x2="${short(x2)}" y2="${short(y2)}" stroke="${stroke}" stroke-width="${width}"${dashes}/>`);
  }

  text(x, y, words, fill, { size = 11, anchor = 'start', weight = 400 } = {}) {
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}" dominant-baseline="central">${escape(words)}</text>`);
  }

  /** The whole file. */
  toString() {
    const { width, height } = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${escape(this.font)}">\n${this.parts.join('\n')}\n</svg>\n`;
  }
}

const short = (number) => Number(number.toFixed(2));

const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
