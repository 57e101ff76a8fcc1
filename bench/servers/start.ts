import { flushCompileCache } from 'node:module';
import { loadFaster } from '../../src/process/module-loading.ts';

/** Starts the runtime as its own `main.ts` and `cli/start.ts` do. `node servers/start.ts <port> <url> <url>` */
loadFaster();
await import('./runtime.ts');
flushCompileCache();
