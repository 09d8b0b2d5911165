// Drives the page in Chromium. `cargo xtask page` starts the servers and says where they are; arguments name the modules to run.

import { finish } from './check.mjs';

const MODULES = ['chat', 'access', 'schedule', 'hostile', 'pictures'];

const wanted = process.argv.slice(2);
for (const name of MODULES.filter((name) => !wanted.length || wanted.includes(name))) await import(`./${name}.mjs`);
await finish();
