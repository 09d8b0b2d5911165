// Requests to the server that the page came from, with the user's key.

const KEY = 'andante.key';

/** Tells who listens that the server wants a key (`key`), or has answered or not (`health`). */
export const signals = new EventTarget();

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const key = () => localStorage.getItem(KEY) ?? '';

export function setKey(text) {
  if (text) localStorage.setItem(KEY, text);
  else localStorage.removeItem(KEY);
}

/** The response to a request; an error with the server's words where it refuses. */
export async function ask(path, { body, signal, method = body ? 'POST' : 'GET' } = {}) {
  const headers = {};
  if (body) headers['content-type'] = 'application/json';
  if (key()) headers.authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: 'no-store' });
  } catch (error) {
    if (error.name !== 'AbortError') tell('health', 'no answer');
    throw error;
  }
  if (response.ok) {
    tell('health', 'ready');
    return response;
  }
  if (response.status === 401) tell('key');
  throw new ApiError(response.status, await complaint(response));
}

export const json = async (path, options) => (await ask(path, options)).json();

async function complaint(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.slice(0, 500) || `the server answered ${response.status}`;
  }
}

function tell(name, detail) {
  signals.dispatchEvent(new CustomEvent(name, { detail }));
}

/** Server-sent events of a response, as `{event, data}`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const whole = rest.split('\n\n');
      rest = whole.pop();
      for (const text of whole) {
        const event = { event: 'message', data: '' };
        for (const line of text.split('\n')) {
          if (line.startsWith('data: ')) event.data += line.slice(6);
          else if (line.startsWith('event: ')) event.event = line.slice(7);
        }
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
