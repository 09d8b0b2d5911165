// Where the user writes, with one line above it that says how the answer under way gets on.

import { h, icon } from '../dom.js';
import { counted, duration, rate } from '../format.js';

/** The form. `send` gets a text, `stop` ends the answer under way. */
export function composerView({ send, stop, openSettings }) {
  const field = h('textarea', {
    class: 'field', rows: 1, name: 'message', 'aria-label': 'Message', placeholder: 'Write to the model', enterkeyhint: 'send',
  });
  const words = h('span', { class: 'words' });
  const meter = h('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'Prompt read' });
  const submit = h('button', { class: 'primary icon', 'aria-label': 'Send', title: 'Send (Enter)' }, icon('send'));
  const settings = h('button', {
    type: 'button', class: 'quiet icon', 'aria-label': 'Settings', title: 'Settings', 'aria-expanded': 'false', onclick: openSettings,
  }, icon('tune'));
  let busy = false;
  const fit = () => {
    field.style.height = 'auto';
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const element = h('form', {
    class: 'composer',
    onsubmit: (event) => {
      event.preventDefault();
      if (busy) {
        stop();
      } else if (field.value.trim()) {
        const text = field.value;
        field.value = '';
        fit();
        send(text);
      }
    },
  },
  h('p', { class: 'under-way' }, meter, words),
  h('div', { class: 'write' }, settings, field, submit));
  field.addEventListener('input', fit);
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!busy) element.requestSubmit();
    }
  });
  return {
    element,
    field,
    settings,
    /** Shows how `message` gets on; nothing when there is none under way. */
    update(message) {
      if (busy !== Boolean(message)) {
        busy = Boolean(message);
        submit.replaceChildren(icon(busy ? 'stop' : 'send'));
        submit.setAttribute('aria-label', busy ? 'Stop' : 'Send');
        submit.title = busy ? 'Stop (Escape)' : 'Send (Enter)';
      }
      words.textContent = message ? underWay(message) : '';
      meter.hidden = message?.state !== 'reading';
      if (!meter.hidden) meter.value = message.progress.processed / message.progress.total;
    },
  };
}

function underWay({ state, progress, speed }) {
  if (state === 'waiting') return 'Waiting for a turn';
  if (state === 'reading') {
    const left = progress.remaining_ms === null ? '' : ` · ${duration(1e3 * progress.remaining_ms)} left`;
    const known = progress.cache ? ` (${counted(progress.cache, 'token')} known)` : '';
    return `Reading the prompt: ${progress.processed} of ${counted(progress.total, 'token')}${known}${left}`;
  }
  return `${state === 'thinking' ? 'Thinking' : 'Writing'}${speed ? ` · ${rate(speed)} tok/s` : ''}`;
}
