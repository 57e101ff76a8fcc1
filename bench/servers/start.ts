import { loadFaster } from '../../src/module-loading.ts';

/** Starts the runtime as its own `main.ts` does. `node servers/start.ts <port> <url>` */
loadFaster();
await import('./runtime.ts');
