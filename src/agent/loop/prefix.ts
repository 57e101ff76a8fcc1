import { createHash } from 'node:crypto';
import { type Content, getFunctionCalls, getFunctionResponses, getParts } from '../../core/content.ts';
import { isRefusal } from '../../core/error-codes.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { GO_ON, type ModelRequest } from '../definition/model.ts';
import { READ_RESULT } from '../../core/names.ts';
import type { InstructionPiece } from './instruction.ts';
import type { AgentTurn, InvocationState, SentRequest } from './invocation-state.ts';

/*
 * A provider caches the beginning of a request, so that the next request costs less if it begins alike. What a request
 * does not share with the one before it is a break, and is named: in the event of the model call, in its span, and in a
 * metric. A request begins with its instruction and tools; its contents follow.
 */

/** The part of a request in which it stops being alike. */
type BrokenPart = 'model' | 'instruction' | 'tools' | 'contents';

export interface PrefixBreak {
  part: BrokenPart;
  /** What changed it: names of placeholders or tools, or what replaced earlier contents. */
  why: string;
  /** The event that changed what an earlier request held, if one did. */
  eventId?: string;
}

/** What explains a change of contents that were sent before. */
const CHANGES = ['summary', 'rewind', 'refused message', 'late response'] as const;
type Change = (typeof CHANGES)[number];
const BETWEEN = 'since the last invocation';

/**
 * `declared`: the runtime made it, and says where: an event changed earlier contents, or `read_result` was added.
 * `between_invocations`: the instruction or the tools are not those of the last invocation. `undeclared`: all others.
 */
export type BreakKind = 'declared' | 'between_invocations' | 'undeclared';

export function toBreakKind({ part, why }: PrefixBreak): BreakKind {
  if (why === BETWEEN) return 'between_invocations';
  const changes: readonly string[] = part === 'contents' ? CHANGES : part === 'tools' ? [`+${READ_RESULT}`] : [];
  return changes.includes(why) ? 'declared' : 'undeclared';
}

/** Member of `customMetadata` in the event of a model call. */
const MEMBER = 'agent-runtime/prefix';

export interface StoredPrefix {
  /** Digests of the instruction and of the tools, for the next invocation; only with `promptCaching: true`. */
  instruction?: string;
  tools?: string;
  break?: PrefixBreak;
}

const getStored = ({ customMetadata }: Event) => customMetadata?.[MEMBER] as StoredPrefix | undefined;

export const getBreak = (event: Event | undefined): PrefixBreak | undefined => event && getStored(event)?.break;

const digest = (value: unknown) => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16);

/** Notes a request, as it is sent, and finds where it breaks with the one before it. */
export function notePrefix(
  invocation: InvocationState,
  { agent, branch }: AgentTurn,
  request: ModelRequest,
  pieces: readonly InstructionPiece[],
): StoredPrefix | undefined {
  if (agent.isRemote) return undefined;
  const { modelName, instruction, tools } = request;
  const contents = withoutTail(request.contents);
  const sent = { modelName, pieces, instruction, tools, contents, events: invocation.events.length };
  const key = JSON.stringify([agent.name, branch]);
  const before = invocation.sent.get(key);
  invocation.sent.set(key, sent);
  const digests = agent.sampling.promptCaching
    ? { instruction: digest(instruction), tools: digest(tools.map(toDeclared)) }
    : undefined;
  const found = before ? compare(before, sent, invocation) : compareStored(invocation, { agent, branch }, digests);
  return found || digests ? { ...digests, ...(found && { break: found }) } : undefined;
}

export const withPrefix = (event: NewEvent, prefix: StoredPrefix | undefined): NewEvent =>
  prefix ? { ...event, customMetadata: { ...event.customMetadata, [MEMBER]: prefix } } : event;

/** The last content may be a request of the runtime to go on, which no later request repeats. */
const withoutTail = (contents: readonly Content[]): readonly Content[] => {
  const { role, parts = [] } = contents.at(-1) ?? {};
  return role === 'user' && parts?.length === 1 && parts[0]?.text === GO_ON ? contents.slice(0, -1) : contents;
};

function compare(before: SentRequest, now: SentRequest, invocation: InvocationState): PrefixBreak | undefined {
  if (before.modelName !== now.modelName) return { part: 'model', why: now.modelName };
  if (before.instruction !== now.instruction)
    return { part: 'instruction', why: changedPieces(before.pieces, now.pieces) };
  const changed = changedTools(before.tools, now.tools);
  if (changed !== undefined) return { part: 'tools', why: changed };
  const isShorter = now.contents.length < before.contents.length;
  const place = before.contents.findIndex((content, index) => !isSame(content, now.contents[index]));
  if (!isShorter && place < 0) return undefined;
  return findChange(invocation.events, before.events) ?? { part: 'contents', why: `content ${place + 1}` };
}

const toDeclared = ({ name, description, parameters }: ModelRequest['tools'][number]) => [
  name,
  description,
  parameters,
];

function changedPieces(before: readonly InstructionPiece[], now: readonly InstructionPiece[]): string {
  const toKey = ({ key, artifact }: InstructionPiece) => (artifact === undefined ? key : `artifact.${artifact}`);
  const old = new Map(before.map((piece) => [toKey(piece), piece.text]));
  const names = now.flatMap((piece) => {
    const key = toKey(piece);
    return key !== undefined && old.get(key) !== piece.text ? [key] : [];
  });
  return [...new Set(names)].join(', ') || 'its text';
}

function changedTools(before: ModelRequest['tools'], now: ModelRequest['tools']): string | undefined {
  const isLike = (tool: ModelRequest['tools'][number], place: number) => {
    const other = before[place];
    if (!other || other.name !== tool.name || other.description !== tool.description) return false;
    return other.parameters === tool.parameters || JSON.stringify(other.parameters) === JSON.stringify(tool.parameters);
  };
  if (before.length === now.length && now.every(isLike)) return undefined;
  const isMissing = (tools: ModelRequest['tools']) => (tool: { name: string }) =>
    !tools.some(({ name }) => name === tool.name);
  const added = now.filter(isMissing(before)).map(({ name }) => `+${name}`);
  const removed = before.filter(isMissing(now)).map(({ name }) => `-${name}`);
  return [...added, ...removed].join(' ') || 'a declaration or the order';
}

function isSame(one: Content, other: Content | undefined): boolean {
  if (one === other) return true;
  if (!other || one.role !== other.role) return false;
  const [parts, others] = [getParts(one), getParts(other)];
  return (
    parts.length === others.length &&
    parts.every((part, place) => part === others[place] || JSON.stringify(part) === JSON.stringify(others[place]))
  );
}

/** Finds the event from `start` on that changed what models read of the events before it. */
function findChange(events: readonly Event[], start: number): PrefixBreak | undefined {
  let earlier: Set<unknown> | undefined;
  const answersEarlier = ({ content }: Event) => {
    const responses = getFunctionResponses(content);
    if (responses.length === 0) return false;
    const calls = () => events.slice(0, start).flatMap((event) => getFunctionCalls(event.content).map(({ id }) => id));
    earlier ??= new Set(calls());
    return responses.some(({ id }) => earlier?.has(id));
  };
  for (const event of events.slice(start)) {
    const why: Change | undefined = event.actions?.compaction
      ? 'summary'
      : event.actions?.rewindBeforeInvocationId
        ? 'rewind'
        : isRefusal(event.errorCode)
          ? 'refused message'
          : answersEarlier(event)
            ? 'late response'
            : undefined;
    if (why) return { part: 'contents', why, ...(event.id && { eventId: event.id }) };
  }
  return undefined;
}

/** Compares the first request of an invocation with the agent's last one, by what its event tells. */
function compareStored(
  { events }: InvocationState,
  { agent, branch }: Pick<AgentTurn, 'agent' | 'branch'>,
  digests: Required<Pick<StoredPrefix, 'instruction' | 'tools'>> | undefined,
): PrefixBreak | undefined {
  const place = events.findLastIndex(
    (event) => event.author === agent.name && (event.branch ?? undefined) === branch && event.usageMetadata != null,
  );
  const last = events[place];
  if (!last) return undefined;
  const stored = getStored(last);
  for (const part of ['instruction', 'tools'] as const)
    if (digests && stored?.[part] !== undefined && stored[part] !== digests[part]) return { part, why: BETWEEN };
  return findChange(events, place);
}
