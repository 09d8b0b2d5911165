// The view of one conversation, beside the list of all.

import { add, choose, create, path, SETTINGS, siblings } from '../conversation.js';
import { announce, h, iconButton } from '../dom.js';
import { load, save } from '../store.js';
import { answer } from './answer.js';
import { composerView } from './composer.js';
import { listView } from './list.js';
import { isBusy, messageView } from './message.js';
import { settingsView } from './settings.js';

/** The settings that new conversations begin with: those last used. */
const LAST_SETTINGS = 'andante.settings';
/** Shortest time between two renderings of a growing answer, and between two times that it is kept, in ms. */
const SHOW_EVERY = 60;
const SAVE_EVERY = 1_000;
/** So near the end, the view follows what is written. In pixels. */
const NEAR_END = 80;

/** Answers under way, by conversation: they go on while another view is open. */
const running = new Map();

const lastSettings = () => {
  try {
    return JSON.parse(localStorage.getItem(LAST_SETTINGS)) ?? {};
  } catch {
    return {};
  }
};

export async function chatView(main, id, signal) {
  const known = running.get(id)?.conversation ?? (id && id !== 'new' ? await load(id) : undefined);
  if (signal.aborted) return;
  new Chat(main, known ?? create(lastSettings()), signal);
}

class Chat {
  constructor(main, conversation, signal) {
    this.conversation = conversation;
    this.signal = signal;
    this.views = new Map();
    conversation.settings = { ...SETTINGS, ...conversation.settings };
    // What was under way when the page was closed has ended.
    if (!running.has(conversation.id)) {
      for (const message of conversation.messages.filter(isBusy)) message.state = 'stopped';
    }
    this.list = listView({
      current: () => conversation.id,
      left: () => { location.hash = '#/chat/new'; },
      renamed: (title) => { conversation.title = title; },
      signal,
    });
    this.composer = composerView({
      send: (text) => this.send(text),
      stop: () => running.get(conversation.id)?.abort.abort(),
      openSettings: () => this.toggleSettings(),
    });
    this.messages = h('div', { class: 'messages' });
    this.scroller = h('div', { class: 'scroller', tabindex: 0, role: 'group', 'aria-label': 'Messages' }, this.messages);
    this.panel = h('aside', { class: 'panel', hidden: true, 'aria-label': 'Settings' });
    const open = iconButton('list', 'Conversations', () => {
      const shown = element.classList.toggle('with-list');
      open.setAttribute('aria-expanded', String(shown));
    }, { class: 'quiet icon list-button', 'aria-expanded': 'false' });
    const element = h('div', { class: 'chat' }, this.list.element,
      h('section', { class: 'talk', 'aria-label': 'Conversation' }, open, this.scroller, this.composer.element), this.panel);
    main.replaceChildren(element);
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !event.defaultPrevented && !document.querySelector('dialog[open]')) running.get(conversation.id)?.abort.abort();
    }, { signal });
    running.get(conversation.id)?.watchers.add(this);
    signal.addEventListener('abort', () => running.get(conversation.id)?.watchers.delete(this));
    this.showAll();
    // Where there is a keyboard, one can write at once.
    if (matchMedia('(hover: hover)').matches) this.composer.field.focus({ preventScroll: true });
  }

  get actions() {
    const { conversation } = this;
    return {
      siblings: (message) => siblings(conversation, message),
      hasReplies: (message) => conversation.messages.some(({ parent }) => parent === message.id),
      choose: (message) => this.change(() => choose(conversation, message)),
      edit: (message, text) => this.change(() => this.ask(add(conversation, message.parent, { role: 'user', text }))),
      again: (message) => this.change(() => this.ask({ id: message.parent })),
      goOn: (message) => this.change(() => this.run(message, true)),
      result: (message, texts) => this.change(() => {
        let last = message;
        message.calls.forEach(({ id }, index) => {
          last = add(conversation, last.id, { role: 'tool', callId: id, text: texts[index] });
        });
        this.ask(last);
      }),
    };
  }

  send(text) {
    const parent = path(this.conversation).at(-1)?.id ?? '';
    this.change(() => this.ask(add(this.conversation, parent, { role: 'user', text })));
  }

  /** Changes the tree, unless an answer is under way. */
  change(how) {
    if (running.has(this.conversation.id)) return;
    how();
    save(this.conversation);
    this.showAll();
    // A new conversation has an address once there is something in it.
    history.replaceState(null, '', `#/chat/${this.conversation.id}`);
  }

  /** Has the model answer `message`. */
  ask({ id }) {
    this.run(add(this.conversation, id, { role: 'assistant', state: 'waiting' }), false);
  }

  async run(message, goOn) {
    const { conversation } = this;
    const run = { conversation, message, abort: new AbortController(), watchers: new Set([this]) };
    running.set(conversation.id, run);
    let saved = performance.now();
    let due = 0;
    const tell = () => {
      due = 0;
      for (const chat of run.watchers) chat.follow(message);
    };
    const changed = () => {
      due ||= setTimeout(tell, SHOW_EVERY);
      if (performance.now() - saved > SAVE_EVERY) {
        saved = performance.now();
        save(conversation);
      }
    };
    await answer(conversation, message, { signal: run.abort.signal, changed, goOn });
    clearTimeout(due);
    running.delete(conversation.id);
    conversation.updated = Date.now();
    await save(conversation);
    tell();
    announce(message.state === 'failed' ? 'The answer has failed' : 'The answer is complete');
  }

  /** Shows what is new of a message. */
  follow(message) {
    if (this.signal.aborted) return;
    const { scroller } = this;
    const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;
    this.views.get(message.id)?.update();
    this.composer.update(running.get(this.conversation.id)?.message);
    if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  }

  showAll() {
    const shown = path(this.conversation);
    this.views.clear();
    const elements = shown.map((message) => {
      const view = messageView(message, this.actions);
      this.views.set(message.id, view);
      view.update();
      return view.element;
    });
    const title = h('h1', { class: 'unseen' }, this.conversation.title);
    this.messages.replaceChildren(...(elements.length ? [title, ...elements] : [welcome()]));
    this.composer.update(running.get(this.conversation.id)?.message);
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  toggleSettings() {
    const { panel, composer, conversation } = this;
    panel.hidden = !panel.hidden;
    composer.settings.setAttribute('aria-expanded', String(!panel.hidden));
    if (panel.hidden) {
      composer.settings.focus();
      return;
    }
    panel.replaceChildren(settingsView(conversation.settings, {
      changed: () => {
        localStorage.setItem(LAST_SETTINGS, JSON.stringify(conversation.settings));
        if (conversation.messages.length) save(conversation);
      },
      close: () => this.toggleSettings(),
    }));
    panel.querySelector('textarea').focus();
  }
}

function welcome() {
  return h('div', { class: 'welcome' },
    h('h1', {}, 'What shall we talk about?'),
    h('p', {}, 'Everything stays on this machine. Conversations are kept in this browser.'),
    h('p', {}, 'While the model works, ', h('a', { href: '#/schedule' }, 'Schedule'), ' shows who gets which turn, and why.'));
}
