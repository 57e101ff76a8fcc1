import { CommandError } from './command-error.ts';
import type { SessionSource, SourceSession } from './import-source.ts';

/** The sessions of some users on a server that speaks ADK's wire, such as `adk api_server` or another of these. */
export async function openAdkServer(url: string, users: string[], key: string | undefined): Promise<SessionSource> {
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const get = async (path: string): Promise<string> => {
    const response = await fetch(new URL(path, url), { headers }).catch((error: Error) => {
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
  // The oldest first: what sessions share ends as the newest one knows it.
  for (const { id } of listed.toSorted((one, other) => one.lastUpdateTime - other.lastUpdateTime))
    yield { appName, userId, sessionId: id, body: () => get(`${path}/${encodeURIComponent(id)}`) };
}
