import type { Event } from '../core/event.ts';
import { type Api, type GlobalOptions, sessionsPath, withApi } from './api.ts';
import { CommandError } from './command-error.ts';
import { toLines } from './conversation.ts';
import { printList, toTime } from './output.ts';

/** A session on the wire. */
interface SessionBody {
  id: string;
  state: object;
  events: Event[];
  lastUpdateTime: number;
}

/** Sessions of one request, at most. */
const PAGE = 200;

/** Prints the user's sessions, the newest first. */
export async function listSessions(options: GlobalOptions & { limit: string }): Promise<void> {
  const limit = Number(options.limit);
  if (!Number.isSafeInteger(limit) || limit < 1) throw new CommandError('--limit is a whole number from 1.', 2);
  await withApi(options, async (api) => {
    const sessions: SessionBody[] = [];
    for await (const session of allSessions(api, options)) {
      sessions.push(session);
      if (sessions.length === limit) break;
    }
    printList(sessions, {
      ...options,
      head: ['session', 'last update', 'state'],
      toRow: ({ id, lastUpdateTime, state }) => [id, toTime(lastUpdateTime), Object.keys(state).join(', ')],
      empty: `${options.user} has no sessions with ${options.app}.`,
    });
  });
}

/** Prints a conversation, or the session as it is on the wire. */
export const showSession = (id: string, options: GlobalOptions): Promise<void> =>
  withApi(options, async (api) => {
    const session = await getSession(api, options, id);
    if (options.json) return console.log(JSON.stringify(session));
    console.log(session.events.flatMap(toLines).join('\n'));
  });

/** Writes sessions with their events to the output, one a line. */
export const exportSessions = (ids: string[], options: GlobalOptions): Promise<void> =>
  withApi(options, async (api) => {
    const chosen = ids.length > 0 ? ids : allIds(api, options);
    for await (const id of chosen) console.log(JSON.stringify(await getSession(api, options, id)));
  });

const pathOf = (options: GlobalOptions, id: string) => `${sessionsPath(options)}/${encodeURIComponent(id)}`;

const getSession = (api: Api, options: GlobalOptions, id: string) => api.send<SessionBody>('GET', pathOf(options, id));

async function* allIds(api: Api, options: GlobalOptions): AsyncGenerator<string, void, void> {
  for await (const { id } of allSessions(api, options)) yield id;
}

/** The user's sessions, page by page, the newest first. */
async function* allSessions(api: Api, options: GlobalOptions): AsyncGenerator<SessionBody, void, void> {
  let cursor: string | null = '';
  while (cursor !== null) {
    const query = new URLSearchParams({ limit: String(PAGE), ...(cursor === '' ? {} : { cursor }) });
    const response = await api.open('GET', `${sessionsPath(options)}?${query.toString()}`);
    yield* (await response.json()) as SessionBody[];
    cursor = response.headers.get('x-next-cursor');
  }
}
