import { setImmediate as nextTurn } from 'node:timers/promises';

/** How long work may hold the event loop in one piece, milliseconds. */
const SLICE_MS = 10;

/** Returns a function for long work to await between its steps: it lets others have a turn where they waited long. */
export function newPauses(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < SLICE_MS) return;
    await nextTurn();
    since = performance.now();
  };
}
