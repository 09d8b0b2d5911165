// The frame around the views: which one is shown, the key, light and dark, whether the server answers.

import { json, key, setKey, signals } from './api.js';
import { h, icon } from './dom.js';

const THEME = 'andante.theme';

/** Views are loaded when they are first wanted. */
const VIEWS = {
  chat: async () => (await import('./chat/chat.js')).chatView,
  schedule: async () => (await import('./schedule/schedule.js')).scheduleView,
  kv: async () => (await import('./kv.js')).kvView,
  model: async () => (await import('./model.js')).modelView,
};

const main = document.getElementById('main');
let leave = new AbortController();

async function show() {
  const [name, rest] = location.hash.replace(/^#\//, '').split('/');
  if (!VIEWS[name]) {
    if (location.hash !== '#main') location.replace('#/chat');
    return;
  }
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  for (const link of document.querySelectorAll('.views a')) {
    if (link.dataset.view === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${document.querySelector(`.views a[data-view=${name}]`).textContent} · Andante`;
  main.className = `view-${name}`;
  const view = await VIEWS[name]();
  if (!signal.aborted) await view(main, rest, signal);
}

function askForKey() {
  if (document.querySelector('dialog.key')) return;
  const field = h('input', { class: 'field', type: 'password', autocomplete: 'current-password', value: key(), 'aria-label': 'API key' });
  const dialog = h('dialog', { class: 'ask key', 'aria-label': 'API key' },
    h('h2', {}, 'API key'),
    h('p', {}, 'This server answers whoever has a key. It is kept in this browser and sent to this server alone.'),
    h('form', { method: 'dialog' }, field,
      h('div', { class: 'row end' },
        h('button', { value: 'no', class: 'quiet', formnovalidate: true }, 'Cancel'),
        h('button', { value: 'yes', class: 'primary' }, 'Use it'))));
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (dialog.returnValue === 'yes') {
      setKey(field.value.trim());
      show();
    }
  });
  // Enter means yes.
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') {
      event.preventDefault();
      dialog.close('yes');
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem(THEME, name);
}

function health(words) {
  const shown = document.getElementById('health');
  shown.dataset.state = words;
  shown.lastElementChild.textContent = words;
}

async function begin() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const kept = localStorage.getItem(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
  const button = document.getElementById('theme');
  button.append(icon('sun'));
  button.onclick = () => {
    const now = document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
    theme(now === 'dark' ? 'light' : 'dark');
    dispatchEvent(new Event('theme'));
  };
  const keyButton = document.getElementById('key');
  keyButton.append(icon('key'));
  keyButton.onclick = askForKey;
  signals.addEventListener('key', askForKey);
  signals.addEventListener('health', ({ detail }) => health(detail));
  addEventListener('hashchange', show);
  show();
  try {
    const { data: [model] } = await json('/v1/models');
    document.querySelector('.brand span').textContent = 'Andante';
    document.getElementById('health').title = model.id;
    health('ready');
  } catch {
    // The signal has told.
  }
}

begin();
