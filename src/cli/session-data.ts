import { type GlobalOptions, sessionPath, withApi } from './api.ts';
import { CommandError, print, style, toLine, toShown } from './output.ts';

/** Maximum number of characters that are printed of a value that differs. */
const SHOWN = 300;

/** Parses an option as a whole number of at least 0. @throws {CommandError} for any other text */
export function toSequence(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const sequence = Number(text);
  if (text !== '' && Number.isSafeInteger(sequence) && sequence >= 0) return sequence;
  throw new CommandError(`${name} is a whole number from 0.`, 2);
}

/** Parses labels, `name=value`. @throws {CommandError} for a text without `=` */
function toLabels(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const end = text.indexOf('=');
      if (end < 1) throw new CommandError(`A label is written name=value, not ${text}.`, 2);
      return [text.slice(0, end), text.slice(end + 1)];
    }),
  );
}

interface ForkOptions extends GlobalOptions {
  at?: string;
  id?: string;
  label?: string[];
}

/** Copies a session up to an event to a new session (a fork), and prints the new session's id. */
export async function forkSession(session: string, options: ForkOptions): Promise<void> {
  const atSequence = toSequence('--at', options.at);
  const body = { sessionId: options.id, atSequence, labels: toLabels(options.label ?? []) };
  await withApi(options, async (api) => {
    const made = await api.send<{ id: string }>('POST', `${sessionPath(options, session)}/fork`, body);
    print(options.json ? JSON.stringify(made) : made.id);
  });
}

export async function labelSession(
  session: string,
  labels: string[],
  options: GlobalOptions & { remove?: string[] },
): Promise<void> {
  const removed = Object.fromEntries((options.remove ?? []).map((name) => [name, null]));
  const changes = { ...toLabels(labels), ...removed };
  await withApi(options, async (api) => {
    const path = `${sessionPath(options, session)}/labels`;
    const all = await (Object.keys(changes).length === 0
      ? api.send<Record<string, string>>('GET', path)
      : api.send<Record<string, string>>('PATCH', path, changes));
    if (options.json) return print(JSON.stringify(all));
    for (const [name, value] of Object.entries(all)) print(`${name}=${value}`);
  });
}

interface Side {
  value: unknown;
  other: unknown;
}
interface SessionDiff {
  sameEvents: number;
  differingEvents: number;
  events: ({ sequence: number; path: string } & Side)[];
  differingKeys: number;
  state: ({ key: string } & Side)[];
}

interface DiffOptions extends GlobalOptions {
  at?: string;
  otherAt?: string;
}

/** Prints the differences of two sessions. @returns the exit code: 0 if they are equal, 1 if they differ */
export async function diffSessions(session: string, other: string, options: DiffOptions): Promise<number> {
  const [at, otherAt] = [toSequence('--at', options.at), toSequence('--other-at', options.otherAt)];
  const query = new URLSearchParams({
    other,
    ...(at === undefined ? {} : { atSequence: String(at) }),
    ...(otherAt === undefined ? {} : { otherAtSequence: String(otherAt) }),
  });
  return withApi(options, async (api) => {
    const diff = await api.send<SessionDiff>('GET', `${sessionPath(options, session)}/diff?${query.toString()}`);
    console.log(options.json ? toShown(JSON.stringify(diff)) : toText(diff).join('\n'));
    return diff.differingEvents + diff.differingKeys === 0 ? 0 : 1;
  }).catch((error: unknown) => {
    throw error instanceof CommandError ? new CommandError(error.message, 2) : error;
  });
}

function toText({ sameEvents, differingEvents, events, differingKeys, state }: SessionDiff): string[] {
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
