// Conversations in the browser's own database (IndexedDB); other tabs hear of changes.

const channel = new BroadcastChannel('andante.conversations');

/** Says `change` when another tab, or this one, has changed what is kept. */
export const changes = new EventTarget();

channel.onmessage = () => changes.dispatchEvent(new Event('change'));

function told(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

let opened;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('andante', 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('conversations', { keyPath: 'id' });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function conversations(mode) {
  return (await database()).transaction('conversations', mode).objectStore('conversations');
}

function changed() {
  channel.postMessage('change');
  changes.dispatchEvent(new Event('change'));
}

/** All of them, the latest first, without their messages. */
export async function list() {
  const all = await told((await conversations('readonly')).getAll());
  return all
    .map(({ id, title, updated }) => ({ id, title, updated }))
    .sort((a, b) => b.updated - a.updated);
}

export async function load(id) {
  return told((await conversations('readonly')).get(id));
}

/** Keeps a conversation as it is now. */
export async function save(conversation) {
  await told((await conversations('readwrite')).put(conversation));
  changed();
}

export async function remove(id) {
  await told((await conversations('readwrite')).delete(id));
  changed();
}
