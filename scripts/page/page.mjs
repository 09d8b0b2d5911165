// Drives the page in Chromium. `cargo xtask page` starts the servers and says where they are; arguments name the modules to run.

import { finish } from './check.mjs';

// `pictures` checks nothing, and is there for who asks for it.
const CHECKS = ['chat', 'access', 'schedule', 'kv', 'hostile'];

const wanted = process.argv.slice(2);
for (const name of wanted.length ? wanted : CHECKS) await import(`./${name}.mjs`);
await finish();
