// A conversation: a tree of messages, of which one path is shown. Editing a message, or asking again, begins another branch.
//
// A message is `{id, parent, role, text, reasoning, calls, state, …}`; `parent` of the first ones is ''. `chosen` says which
// child of a message is on the path.

/** `randomUUID` is not there for pages that came over plain HTTP from another machine. */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** How a request is made, unless the user says otherwise. Empty means: as the server does. */
export const SETTINGS = {
  system: '',
  temperature: '',
  top_p: '',
  top_k: '',
  min_p: '',
  repetition_penalty: '',
  max_tokens: '',
  seed: '',
  thinking: '',
  schema: '',
  tools: '',
};

export function create(settings = {}) {
  const now = Date.now();
  return {
    id: newId(),
    title: '',
    created: now,
    updated: now,
    settings: { ...SETTINGS, ...settings },
    messages: [],
    chosen: {},
  };
}

export const find = (conversation, id) => conversation.messages.find((message) => message.id === id);

/** The messages that could stand where this one does, in the order in which they were made. */
export const siblings = (conversation, { parent, role }) =>
  conversation.messages.filter((message) => message.parent === parent && message.role === role);

/** The messages that are shown. */
export function path(conversation) {
  const shown = [];
  let parent = '';
  for (;;) {
    const chosen = conversation.chosen[parent];
    const message = find(conversation, chosen) ?? conversation.messages.findLast((one) => one.parent === parent);
    if (!message) return shown;
    shown.push(message);
    parent = message.id;
  }
}

/** Adds a message behind `parent` and shows it. */
export function add(conversation, parent, fields) {
  const message = { id: newId(), parent, text: '', state: 'done', at: Date.now(), ...fields };
  conversation.messages.push(message);
  conversation.chosen[parent] = message.id;
  conversation.updated = message.at;
  if (!conversation.title && message.role === 'user') conversation.title = titleOf(message.text);
  return message;
}

/** Shows the branch of this message. */
export function choose(conversation, message) {
  conversation.chosen[message.parent] = message.id;
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0];
  return line.length > 60 ? `${line.slice(0, 57)}…` : line;
}

/** The messages up to `last`, that one included, as the API takes them. */
export function messagesFor(conversation, last) {
  const chain = [];
  for (let message = last; message; message = find(conversation, message.parent)) chain.unshift(message);
  const system = conversation.settings.system.trim();
  return [
    ...(system ? [{ role: 'system', content: system }] : []),
    ...chain.map(wire),
  ];
}

function wire({ role, text, reasoning, calls, callId }) {
  if (role === 'tool') return { role, tool_call_id: callId, content: text };
  const message = { role, content: text };
  if (reasoning) message.reasoning_content = reasoning;
  if (calls?.length) {
    message.tool_calls = calls.map(({ id, name, arguments: text }) => ({
      id,
      type: 'function',
      function: { name, arguments: text },
    }));
  }
  return message;
}

/** What the settings add to a request. Throws where they cannot be read. */
export function optionsFor({ settings }) {
  const options = {};
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed']) {
    if (settings[name] !== '') options[name] = Number(settings[name]);
  }
  if (settings.thinking) options.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
  if (settings.schema.trim()) {
    const schema = read(settings.schema, 'The schema');
    options.response_format = { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } };
  }
  if (settings.tools.trim()) {
    const tools = read(settings.tools, 'The list of tools');
    options.tools = (Array.isArray(tools) ? tools : [tools])
      .map((tool) => (tool.function ? tool : { type: 'function', function: tool }));
  }
  return options;
}

export function read(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is no JSON: ${error.message}`);
  }
}
