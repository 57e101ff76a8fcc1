import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { toTarget } from './api.ts';
import { CommandError } from './output.ts';

export interface SourceSession {
  appName: string;
  userId: string;
  sessionId: string;
  /** JSON that creates the session: id, state with `user:` and `app:` keys, and the events exactly as stored. */
  body: () => Promise<string>;
}

/** The sessions of another store, always in the same order. */
export interface SessionSource {
  /** Description of the source for the report. */
  name: string;
  /** The number of sessions. `undefined` if it is known only after all were read. */
  total: number | undefined;
  sessions(): AsyncIterable<SourceSession>;
  close(): Promise<void>;
}

/** Joins JSON texts to a request body. They are not parsed, so that numbers keep all their digits. */
export const toBody = (sessionId: string, state: string, events: string[]): string =>
  `{"sessionId":${JSON.stringify(sessionId)},"state":${state},"events":[${events.join(',')}]}`;

/** Reads a file of `sessions export`, one session per line. @throws {CommandError} for a line that is no session */
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
    // The error below also covers a line that is not JSON.
  }
  throw new CommandError(`${place}: this is no session; \`sessions export\` writes one a line.`, 2);
}

/** Reads the sessions of the named users from a server with ADK's HTTP API, such as `adk api_server`. */
export async function openAdkServer(url: string, users: string[], key: string | undefined): Promise<SessionSource> {
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const get = async (path: string): Promise<string> => {
    const response = await fetch(toTarget(url, path), { headers }).catch((error: Error) => {
      throw new CommandError(
        `${url} cannot be reached: ${error.cause instanceof Error ? error.cause.message : error.message}.`,
        2,
      );
    });
    if (!response.ok) throw new CommandError(`${url} answered ${response.status} to GET ${path}.`, 2);
    return response.text();
  };
  const apps = JSON.parse(await get('/list-apps')) as string[];
  return {
    name: `sessions of ${users.join(', ')} at ${url}`,
    total: undefined,
    sessions: async function* sessions(): AsyncGenerator<SourceSession, void, void> {
      for (const appName of apps) for (const userId of users) yield* readUser(get, appName, userId);
    },
    close: async () => undefined,
  };
}

async function* readUser(
  get: (path: string) => Promise<string>,
  appName: string,
  userId: string,
): AsyncGenerator<SourceSession, void, void> {
  const path = `/apps/${encodeURIComponent(appName)}/users/${encodeURIComponent(userId)}/sessions`;
  const listed = JSON.parse(await get(path)) as { id: string; lastUpdateTime: number }[];
  // The oldest session comes first, because each import overwrites the shared state, and the newest must win.
  for (const { id } of listed.toSorted((one, other) => one.lastUpdateTime - other.lastUpdateTime))
    yield { appName, userId, sessionId: id, body: () => get(`${path}/${encodeURIComponent(id)}`) };
}
