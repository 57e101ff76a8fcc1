import type { Event } from '../core/event.ts';
import { type Api, type GlobalOptions, listItems, sessionPath, sessionsPath, withApi } from './api.ts';
import { toPairs } from './command-row.ts';
import { toLines } from './conversation.ts';
import { print, style, toLine } from './output.ts';

export const toConversation = ({ events }: { events: Event[] }): string[] => events.flatMap(toLines);

/** Maximum number of sessions of a page. */
const PAGE = 200;

/** Writes sessions with their events to standard output, one JSON object per line. Default: all sessions. */
export const exportSessions = (ids: string[], options: GlobalOptions): Promise<void> =>
  withApi(options, async (api) => {
    for await (const id of ids.length > 0 ? ids : allIds(api, options))
      print(JSON.stringify(await api.send('GET', sessionPath(options, id))));
  });

async function* allIds(api: Api, options: GlobalOptions): AsyncGenerator<string, void, void> {
  for await (const { id } of listItems<{ id: string }>(api, `${sessionsPath(options)}?limit=${PAGE}`)) yield id;
}

export async function labelSession(
  session: string,
  labels: string[],
  options: GlobalOptions & { remove?: string[] },
): Promise<void> {
  const removed = Object.fromEntries((options.remove ?? []).map((name) => [name, null]));
  const changes = { ...toPairs(labels), ...removed };
  await withApi(options, async (api) => {
    const path = `${sessionPath(options, session)}/labels`;
    const all = await (Object.keys(changes).length === 0
      ? api.send<Record<string, string>>('GET', path)
      : api.send<Record<string, string>>('PATCH', path, changes));
    if (options.json) return print(JSON.stringify(all));
    for (const [name, value] of Object.entries(all)) print(`${name}=${value}`);
  });
}

/** Maximum number of characters that are printed of a value that differs. */
const SHOWN = 300;

interface Side {
  value: unknown;
  other: unknown;
}
export interface SessionDiff {
  sameEvents: number;
  differingEvents: number;
  events: ({ sequence: number; path: string } & Side)[];
  differingKeys: number;
  state: ({ key: string } & Side)[];
}

export function toDiffLines({ sameEvents, differingEvents, events, differingKeys, state }: SessionDiff): string[] {
  const shown = (value: unknown) => toLine(JSON.stringify(value), SHOWN);
  const sides = ({ value, other }: Side) => [style('red', `- ${shown(value)}`), style('green', `+ ${shown(other)}`)];
  const rest = (listed: number, all: number) => (all > listed ? [`… and ${all - listed} more`] : []);
  return [
    `${sameEvents} events are the same, then ${differingEvents} differ; ${differingKeys} keys of the state differ.`,
    ...events.flatMap((each) => [style('bold', `event ${each.sequence} ${each.path}`.trimEnd()), ...sides(each)]),
    ...rest(events.length, differingEvents),
    ...state.flatMap((each) => [style('bold', `state ${each.key}`), ...sides(each)]),
    ...rest(state.length, differingKeys),
  ];
}
