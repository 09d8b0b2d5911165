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
      request.result.createObjectStore('titles', { keyPath: 'id' });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/** Does something with both stores, wholly or not at all. */
async function change(how) {
  const transaction = (await database()).transaction(['conversations', 'titles'], 'readwrite');
  how(transaction.objectStore('conversations'), transaction.objectStore('titles'));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  channel.postMessage('change');
  changes.dispatchEvent(new Event('change'));
}

async function reading(store) {
  return (await database()).transaction(store, 'readonly').objectStore(store);
}

/** All of them, the latest first, without their messages. */
export async function list() {
  const all = await told((await reading('titles')).getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

export async function load(id) {
  return told((await reading('conversations')).get(id));
}

/** Keeps a conversation as it is now. */
export async function save(conversation) {
  const { id, title, updated } = conversation;
  await change((conversations, titles) => {
    conversations.put(conversation);
    titles.put({ id, title, updated });
  });
}

export async function remove(id) {
  await change((conversations, titles) => {
    conversations.delete(id);
    titles.delete(id);
  });
}
