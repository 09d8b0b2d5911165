// One message as it is shown. `update` brings it up to date without touching what has not changed.

import { copy, h, icon, iconButton } from '../dom.js';
import { count, counted, duration, rate } from '../format.js';
import { show } from '../markdown.js';

const BUSY = ['waiting', 'reading', 'thinking', 'writing'];

export const isBusy = (message) => BUSY.includes(message.state);

/** What can be done with a message is done by `actions`: `edit`, `again`, `goOn`, `choose`, `result`. */
export function messageView(message, actions) {
  const view = message.role === 'user' ? ofUser(message, actions)
    : message.role === 'tool' ? ofTool(message)
    : ofModel(message, actions);
  view.element.dataset.id = message.id;
  return view;
}

function ofUser(message, actions) {
  const text = h('div', { class: 'text plain' }, message.text);
  const edit = iconButton('edit', 'Edit and send again', () => editor(message, text, foot, actions));
  const foot = h('footer', { class: 'foot' }, branches(message, actions), edit);
  return {
    element: h('article', { class: 'message user', 'aria-label': 'You' }, text, foot),
    update() {},
  };
}

function editor(message, text, foot, actions) {
  const field = h('textarea', { class: 'field', rows: 3, 'aria-label': 'Your message', value: message.text });
  const close = () => form.replaceWith(text, foot);
  const form = h('form', {
    class: 'editor',
    onsubmit: (event) => {
      event.preventDefault();
      if (field.value.trim()) actions.edit(message, field.value);
    },
    onkeydown: (event) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        close();
      }
      if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        form.requestSubmit();
      }
    },
  }, field, h('div', { class: 'row end' },
    h('button', { type: 'button', class: 'quiet', onclick: close }, 'Cancel'),
    h('button', { class: 'primary' }, 'Send')));
  foot.remove();
  text.replaceWith(form);
  field.focus();
}

function ofTool(message) {
  return {
    element: h('article', { class: 'message tool', 'aria-label': 'Result of a tool' },
      h('pre', { tabindex: 0, role: 'group', 'aria-label': 'Result' }, message.text)),
    update() {},
  };
}

function ofModel(message, actions) {
  const thoughts = h('div', { class: 'text' });
  const summary = h('summary', {}, 'Thinking');
  const reasoning = h('details', { class: 'reasoning', hidden: true }, summary, thoughts);
  const text = h('div', { class: 'text' });
  const calls = h('div', { class: 'calls' });
  const foot = h('footer', { class: 'foot' });
  const element = h('article', { class: 'message model', 'aria-label': 'The model' }, reasoning, text, calls, foot);
  // What is folded is not rendered: that would be work for nobody.
  reasoning.addEventListener('toggle', () => reasoning.open && show(thoughts, message.reasoning));
  return {
    element,
    update() {
      const busy = isBusy(message);
      element.setAttribute('aria-busy', String(busy));
      if (message.reasoning) {
        reasoning.hidden = false;
        summary.textContent = thinking(message);
        if (reasoning.open) show(thoughts, message.reasoning);
      }
      show(text, message.text);
      if (message.calls?.length) updateCalls(calls, message, actions, busy);
      if (!busy) foot.replaceChildren(...footOf(message, actions));
    },
  };
}

function thinking(message) {
  if (message.state === 'thinking') return 'Thinking…';
  const tokens = message.usage?.completion_tokens_details?.reasoning_tokens;
  const time = message.thoughtFor ? ` for ${duration(1e3 * message.thoughtFor)}` : '';
  return `Thought${time}${tokens ? ` · ${counted(tokens, 'token')}` : ''}`;
}

function updateCalls(calls, message, actions, busy) {
  message.calls.forEach((call, index) => {
    const known = calls.children[index];
    const written = known?.querySelector('pre') ?? h('pre', { tabindex: 0, role: 'group', 'aria-label': 'Arguments' });
    written.textContent = pretty(call.arguments, busy);
    if (!known) {
      calls.append(h('section', { class: 'call', 'aria-label': `Call of ${call.name}` },
        h('h3', {}, icon('more'), ` ${call.name}`), written));
    }
  });
  if (!busy && !actions.hasReplies(message) && !calls.querySelector('form')) calls.append(resultForm(message, actions));
}

function pretty(text, busy) {
  if (busy) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Whoever talks to the model plays its tools. */
function resultForm(message, actions) {
  const fields = message.calls.map((call) => h('textarea', {
    class: 'field', rows: 2, required: true, 'aria-label': `Result of ${call.name}`, placeholder: `What ${call.name} answers`,
  }));
  return h('form', {
    class: 'editor',
    onsubmit: (event) => {
      event.preventDefault();
      actions.result(message, fields.map((field) => field.value));
    },
  }, fields, h('div', { class: 'row end' }, h('button', { class: 'primary' }, 'Send the result')));
}

function footOf(message, actions) {
  const parts = [branches(message, actions)];
  const copying = iconButton('copy', 'Copy the answer', async () => {
    await copy(message.text);
    copying.classList.add('done');
    setTimeout(() => copying.classList.remove('done'), 1_000);
  });
  parts.push(copying, iconButton('again', 'Ask again', () => actions.again(message)));
  if (message.text && !message.calls?.length && ['stopped', 'cut', 'failed'].includes(message.state)) {
    parts.push(iconButton('more', 'Go on from here', () => actions.goOn(message)));
  }
  parts.push(h('span', { class: 'figures' }, figures(message)));
  if (message.error) parts.unshift(h('p', { class: 'error', role: 'alert' }, message.error));
  return parts.filter(Boolean);
}

function figures(message) {
  const figures = [];
  const { timings } = message;
  if (timings) {
    const prompt = timings.prompt_n + timings.cache_n;
    figures.push(counted(timings.predicted_n, 'token'));
    if (timings.predicted_per_second) figures.push(`${rate(timings.predicted_per_second)} tok/s`);
    figures.push(`prompt ${count(prompt)}${timings.cache_n ? ` (${count(timings.cache_n)} known)` : ''}`);
    figures.push(`first after ${duration(1e3 * (timings.queued_ms + timings.prompt_ms))}`);
  }
  if (message.state === 'stopped') figures.push('stopped');
  if (message.state === 'cut') figures.push('cut at the limit');
  return figures.join(' · ');
}

function branches(message, actions) {
  const all = actions.siblings(message);
  if (all.length < 2) return null;
  const at = all.indexOf(message);
  const go = (step) => () => actions.choose(all[at + step]);
  return h('span', { class: 'branches', role: 'group', 'aria-label': 'Versions' },
    iconButton('previous', 'Version before', go(-1), { disabled: at === 0 }),
    h('span', {}, `${at + 1} / ${all.length}`),
    iconButton('next', 'Version after', go(1), { disabled: at === all.length - 1 }));
}
