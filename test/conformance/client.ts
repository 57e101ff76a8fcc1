import { mkdirSync, rmdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * The command that the suite starts for each scenario. It starts all of them at once: here they take turns, since
 * forty processes that load the product keep each other from what the product bounds in time.
 */

const AT_ONCE = 2;

/** Takes one of the places, which are folders of the suite's working directory. @returns it */
async function takePlace(): Promise<string> {
  for (;;) {
    for (let number = 0; number < AT_ONCE; number += 1) {
      const place = `place-${number}`;
      try {
        mkdirSync(place);
        return place;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
    await sleep(100);
  }
}

const place = await takePlace();
process.on('exit', () => rmdirSync(place));
await import('./agent-client.ts');
