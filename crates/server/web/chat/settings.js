// How requests of a conversation are made: system prompt, sampling, form, tools.

import { read } from '../conversation.js';
import { h, iconButton } from '../dom.js';

const NUMBERS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, usual: '1', hint: '0 always takes the likeliest token' },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.01, usual: '1' },
  { name: 'top_k', label: 'Top k', min: 0, max: 1000, step: 1, usual: 'all' },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, usual: '0' },
  { name: 'repetition_penalty', label: 'Repetition penalty', min: 0.5, max: 2, step: 0.05, usual: '1' },
  { name: 'max_tokens', label: 'Most tokens', min: 1, max: 1_000_000, step: 1, usual: 'what fits' },
  { name: 'seed', label: 'Seed', min: 0, max: 2 ** 53 - 1, step: 1, usual: 'drawn' },
];

const EXAMPLE_SCHEMA = '{"type": "object", "properties": {"answer": {"type": "string"}}}';
const EXAMPLE_TOOLS = '[{"name": "weather", "description": "The weather somewhere", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]';

/** The form. `changed` is called with every change of `settings`; `close` hides it. */
export function settingsView(settings, { changed, close }) {
  const set = (name) => ({ target }) => {
    settings[name] = target.value;
    changed();
  };
  return h('form', { class: 'settings', 'aria-label': 'Settings of this conversation', onsubmit: (event) => event.preventDefault() },
    h('div', { class: 'row between' }, h('h2', {}, 'Settings'), iconButton('close', 'Close the settings', close)),
    area('system', 'System prompt', settings.system, set('system'), { rows: 4, placeholder: 'Who the model is to be' }),
    h('fieldset', {}, h('legend', {}, 'Sampling'), NUMBERS.map((field) => number(field, settings, set))),
    h('label', { class: 'pair' }, h('span', {}, 'Thinking'),
      select(settings.thinking, set('thinking'), [['', 'its own way'], ['on', 'on'], ['off', 'off']])),
    json('schema', 'JSON schema of the answer', settings, set, EXAMPLE_SCHEMA),
    json('tools', 'Tools that the model may call', settings, set, EXAMPLE_TOOLS));
}

function number({ name, label, usual, hint, ...limits }, settings, set) {
  return h('label', { class: 'pair', title: hint },
    h('span', {}, label),
    h('input', { type: 'number', class: 'field', name, placeholder: usual, value: settings[name], oninput: set(name), ...limits }));
}

function select(value, onchange, options) {
  const chosen = ([key, label]) => h('option', { value: key, selected: key === value }, label);
  return h('select', { class: 'field', onchange }, options.map(chosen));
}

function area(name, label, value, oninput, properties) {
  return h('label', { class: 'stack' }, h('span', {}, label),
    h('textarea', { class: 'field', name, value, oninput, ...properties }));
}

function json(name, label, settings, set, example) {
  const complaint = h('span', { class: 'error', id: `${name}-complaint`, role: 'status' });
  const check = (text) => {
    try {
      if (text.trim()) read(text, 'This');
      complaint.textContent = '';
    } catch (error) {
      complaint.textContent = error.message;
    }
  };
  const change = set(name);
  const field = area(name, label, settings[name], (event) => {
    check(event.target.value);
    change(event);
  }, { rows: 3, class: 'field code', spellcheck: 'false', placeholder: example, 'aria-describedby': complaint.id });
  check(settings[name]);
  return h('div', {}, field, complaint);
}
