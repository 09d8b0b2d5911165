// The conversations that are kept, to choose from.

import { confirm, h, icon, iconButton } from '../dom.js';
import { ago } from '../format.js';
import { changes, list, load, remove, save } from '../store.js';

/** The list. `current` says which conversation is open; `left` is told of one that is gone. */
export function listView({ current, left, signal }) {
  const items = h('ul', { class: 'conversations' });
  async function refresh() {
    const all = await list();
    items.replaceChildren(...all.map((one) => item(one, one.id === current())));
    items.dataset.ready = 'true';
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
      if (keep && field.value.trim()) {
        const conversation = await load(id);
        await save({ ...conversation, title: field.value.trim() });
      } else {
        await refresh();
      }
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
