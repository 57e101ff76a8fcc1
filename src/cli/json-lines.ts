import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { CommandError } from './command-error.ts';
import type { SessionSource } from './import-source.ts';

/** A session of each line, as `sessions export` writes it. @throws {CommandError} for a line that is none */
export const openJsonLines = (file: string): SessionSource => ({
  name: `sessions of ${file}`,
  total: undefined,
  sessions: async function* sessions() {
    let number = 0;
    for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
      number += 1;
      if (line.trim() === '') continue;
      yield { ...readKey(line, `${file}:${number}`), body: async () => line };
    }
  },
  close: async () => undefined,
});

function readKey(line: string, place: string) {
  try {
    const { id, appName, userId } = JSON.parse(line) as Record<string, unknown>;
    if (typeof id === 'string' && typeof appName === 'string' && typeof userId === 'string')
      return { sessionId: id, appName, userId };
  } catch {
    // Said below: what is no JSON is no session either.
  }
  throw new CommandError(`${place}: this is no session; \`sessions export\` writes one a line.`, 2);
}
