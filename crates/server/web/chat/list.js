// The conversations that are kept, to choose from.

import { confirm, h, icon, iconButton } from '../dom.js';
import { ago } from '../format.js';
import { changes, list, load, remove, save } from '../store.js';

/** The list. `current` says which conversation is open; `left` is told when that one is gone, `renamed` when it has another title. */
export function listView({ current, left, renamed, signal }) {
  const items = h('ul', { class: 'conversations' });
  let shown;
  async function refresh() {
    const all = await list();
    // What is the same stays: somebody may be on it with the keyboard, or renaming it.
    const now = JSON.stringify(all.map(({ id, title }) => [id, title, id === current()]));
    if (now === shown || items.querySelector('input')) return;
    shown = now;
    items.replaceChildren(...all.map((one) => item(one, one.id === current())));
  }
  function item({ id, title, updated }, isCurrent) {
    return h('li', { class: isCurrent ? 'current' : '' },
      h('a', { href: `#/chat/${id}`, 'aria-current': isCurrent ? 'page' : undefined },
        h('span', { class: 'title' }, title || 'Untitled'),
        h('time', { datetime: new Date(updated).toISOString() }, ago(updated))),
      iconButton('edit', `Rename ${title || 'this conversation'}`, (event) => rename(event, id, title)),
      iconButton('remove', `Delete ${title || 'this conversation'}`, async () => {
        if (await confirm(`Delete “${title || 'Untitled'}”? It is kept nowhere else.`, 'Delete')) {
          await remove(id);
          if (id === current()) left();
        }
      }));
  }
  function rename(event, id, title) {
    const entry = event.currentTarget.closest('li');
    const field = h('input', { class: 'field', value: title, 'aria-label': 'Name of the conversation' });
    const done = async (keep) => {
      field.onblur = null;
      const name = field.value.trim();
      field.remove();
      shown = undefined;
      if (!keep || !name) return refresh();
      if (id === current()) renamed(name);
      return save({ ...await load(id), title: name });
    };
    field.onblur = () => done(true);
    field.onkeydown = ({ key }) => {
      if (key === 'Enter') done(true);
      if (key === 'Escape') done(false);
    };
    entry.replaceChildren(field);
    field.select();
  }
  changes.addEventListener('change', refresh, { signal });
  refresh();
  return {
    element: h('nav', { class: 'list', 'aria-label': 'Conversations' },
      h('a', { class: 'primary button', href: '#/chat/new' }, icon('plus'), 'New chat'), items),
    refresh,
  };
}
