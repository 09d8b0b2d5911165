// Elements, made without ever reading text as HTML.

/** An element: `h('button', {class: 'quiet', onclick: send, 'aria-label': 'Send'}, 'Send')`. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/** Strokes on a field of 24 by 24. */
const ICONS = {
  send: 'M12 19V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  plus: 'M12 5v14M5 12h14',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  again: 'M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  remove: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5',
  previous: 'M15 5l-7 7 7 7',
  next: 'M9 5l7 7-7 7',
  more: 'M5 12h9M10 7l5 5-5 5M19 5v14',
  tune: 'M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M8 14v6',
  list: 'M4 6h16M4 12h16M4 18h10',
  key: 'M16 4a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM12.8 11.7L4 20.5M7 17.5l2.5 2.5',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.500M17.5 17.500L19 19M19 5l-1.5 1.500M6.5 17.500L5 19',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 5l12 7-12 7z',
  closer: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5M8 11h6M11 8v6',
  farther: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5M8 11h6',
  save: 'M12 4v11M7 10l5 5 5-5M4 20h16',
  close: 'M6 6l12 12M18 6L6 18',
};

/** A picture that says nothing by itself: whatever holds it has a name. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'glyph');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button that is a picture with a name. */
export function iconButton(name, label, onclick, properties = {}) {
  return h('button', { type: 'button', class: 'quiet icon', 'aria-label': label, title: label, onclick, ...properties }, icon(name));
}

/** Says something to those who cannot see it happen. */
export function announce(text) {
  document.getElementById('announcer').textContent = text;
}

/** Asks before something is lost; resolves to whether to go on. */
export function confirm(question, action) {
  return new Promise((resolve) => {
    const dialog = h('dialog', { class: 'ask', 'aria-label': question },
      h('p', {}, question),
      h('form', { method: 'dialog', class: 'row end' },
        h('button', { value: 'no', class: 'quiet' }, 'Keep'),
        h('button', { value: 'yes', class: 'danger' }, action)));
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes');
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Puts a text into the clipboard, also where the page came over plain HTTP from another machine. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = h('textarea', { class: 'unseen', value: text, 'aria-hidden': 'true' });
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
}

/** Hands the user a file. */
export function download(name, type, text) {
  const link = h('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
