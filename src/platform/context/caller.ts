import { AsyncLocalStorage } from 'node:async_hooks';

const current = new AsyncLocalStorage<string>();

/**
 * Does work in the name of a principal: what is shared between all (connections of the pool, the thread that checks
 * arguments) is handed out in turn to those who want it, however much one of them wants.
 */
export const asCaller = <T>(id: string, work: () => T): T => current.run(id, work);

/** In whose name the work at hand is done; `undefined` for that of the process itself. */
export const currentCaller = (): string | undefined => current.getStore();
