import type { Event } from '../core/event.ts';
import { type Api, type GlobalOptions, sessionPath, sessionsPath, withApi } from './api.ts';
import { CommandError, print, printList, toLine, toTime } from './output.ts';
import { toLines } from './conversation.ts';
import { toSequence } from './session-data.ts';

interface SessionBody {
  id: string;
  state: object;
  events: Event[];
  lastUpdateTime: number;
  labels?: Record<string, string>;
  firstText?: string;
}

interface ListOptions extends GlobalOptions {
  limit: string;
  label?: string[];
  text?: string;
  sort?: string;
  order?: string;
}

/** Maximum number of characters of a session's first text that a list prints. */
const TEXT_SHOWN = 60;

const PAGE = 200;

/** Prints the user's sessions, at most `--limit`. Default order: the latest update first. */
export async function listSessions(options: ListOptions): Promise<void> {
  const limit = Number(options.limit);
  if (!Number.isSafeInteger(limit) || limit < 1) throw new CommandError('--limit is a whole number from 1.', 2);
  await withApi(options, async (api) => {
    const sessions: SessionBody[] = [];
    const { label = [], text, sort, order } = options;
    const chosen = Object.entries({ text, sort, order }).filter(([, value]) => value !== undefined) as [
      string,
      string,
    ][];
    const labelFilters = label.map((each): [string, string] => ['label', each]);
    const filter: [string, string][] = [['withDetails', 'true'], ...labelFilters, ...chosen];
    for await (const session of allSessions(api, options, filter)) {
      sessions.push(session);
      if (sessions.length === limit) break;
    }
    printList(sessions, {
      ...options,
      head: ['session', 'last update', 'labels', 'first text'],
      toRow: ({ id, lastUpdateTime, labels, firstText }) => [
        id,
        toTime(lastUpdateTime),
        Object.entries(labels ?? {})
          .map((each) => each.join('='))
          .join(' '),
        toLine(firstText ?? '', TEXT_SHOWN),
      ],
      empty: `${options.user} has no such sessions with ${options.app}.`,
    });
  });
}

/** Prints the conversation of a session, or with `--json` the session as the service returned it. */
export async function showSession(id: string, options: GlobalOptions & { at?: string }): Promise<void> {
  const at = toSequence('--at', options.at);
  await withApi(options, async (api) => {
    const session = await getSession(api, options, id, at);
    if (options.json) return print(JSON.stringify(session));
    console.log(session.events.flatMap(toLines).join('\n'));
  });
}

/** Writes sessions with their events to standard output, one JSON object per line. */
export const exportSessions = (ids: string[], options: GlobalOptions): Promise<void> =>
  withApi(options, async (api) => {
    const chosen = ids.length > 0 ? ids : allIds(api, options);
    for await (const id of chosen) print(JSON.stringify(await getSession(api, options, id)));
  });

const getSession = (api: Api, options: GlobalOptions, id: string, at?: number) =>
  api.send<SessionBody>('GET', `${sessionPath(options, id)}${at === undefined ? '' : `?atSequence=${at}`}`);

async function* allIds(api: Api, options: GlobalOptions): AsyncGenerator<string, void, void> {
  for await (const { id } of allSessions(api, options)) yield id;
}

async function* allSessions(
  api: Api,
  options: GlobalOptions,
  filter: [string, string][] = [],
): AsyncGenerator<SessionBody, void, void> {
  let cursor: string | null = '';
  while (cursor !== null) {
    const place: [string, string][] = cursor === '' ? [] : [['cursor', cursor]];
    const query = new URLSearchParams([['limit', String(PAGE)], ...filter, ...place]);
    const response = await api.open('GET', `${sessionsPath(options)}?${query.toString()}`);
    yield* (await response.json()) as SessionBody[];
    cursor = response.headers.get('x-next-cursor');
  }
}
