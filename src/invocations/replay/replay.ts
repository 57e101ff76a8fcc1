import type { z } from 'zod';
import { findConfirmations, listAnsweredQuestions } from '../../agent/loop/confirmation.ts';
import { toBreakKind } from '../../agent/loop/prefix.ts';
import { listSteps } from '../../agent/loop/script.ts';
import { findHistory, type SessionHistory } from '../../conversation/sessions/history.ts';
import { isChildSession } from '../../conversation/sessions/session-row.ts';
import { findInitialState } from '../../conversation/sessions/session-store.ts';
import { getAnswerText } from '../../core/content.ts';
import { ConflictError, InvalidError, NotFoundError, UnavailableError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { findInvocationText } from '../invocation-store.ts';
import { type InvocationStatus, isActive } from '../invocation.ts';
import { findAgent } from '../session-lock.ts';
import { invocationNotFound } from '../wire-request.ts';
import { listTapes } from '../tape.ts';
import type { ReplayDifference } from './differences.ts';
import type { Player } from './player.ts';
import { type ReplayContext, type ReplayOptions, replayRun } from './replay-run.ts';
import type { replaySchema } from './replay-schema.ts';
import { listTaskAnswers } from '../waits/task-store.ts';
import { listAttendedCalls, stateBefore, type TapeRun, toRuns } from './tape-run.ts';

export type Replay = z.infer<typeof replaySchema>;

/**
 * Replays a stored invocation: runs the loop again from the same history and state, and compares the events. Stores no
 * event, state, artifact or memory. The signal `gone` is aborted when the client disconnects.
 * @throws {NotFoundError} if there is no such invocation
 * @throws {ConflictError} if the invocation has not ended
 * @throws {InvalidError} if the invocation cannot be replayed with these options
 * @throws {UnavailableError} if the replay exceeds the time limit of invocations, or the process stops
 */
export async function replay(
  context: ReplayContext,
  key: SessionKey,
  invocationId: string,
  options: ReplayOptions,
  disconnected: AbortSignal,
): Promise<Replay> {
  const { timeoutMs } = context.limits;
  const signal = AbortSignal.any([disconnected, context.stopping, AbortSignal.timeout(timeoutMs)]);
  try {
    return await replayRuns(context, key, invocationId, options, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    throw new UnavailableError(`The replay was ended early. It may take ${timeoutMs / 1000} s.`, { cause: error });
  }
}

async function replayRuns(
  context: ReplayContext,
  key: SessionKey,
  invocationId: string,
  options: ReplayOptions,
  signal: AbortSignal,
): Promise<Replay> {
  const { reads } = context.database;
  const agent = findAgent(context, { key });
  if (options.model === 'live' && options.tools === 'live') {
    throw new InvalidError('A replay with model and tools live is a new invocation: at least one comes from the tape.');
  }
  const text = await findInvocationText(reads, key, invocationId);
  const history = text === undefined ? undefined : await findHistory(reads, key);
  // Only a row proves that this runtime produced the events: clients may append events with any invocation id.
  if (text === undefined || !history) throw new NotFoundError(invocationNotFound(invocationId));
  const { status } = JSON.parse(text) as { status: InvocationStatus };
  if (isActive({ status })) throw new ConflictError('The invocation has not ended yet.');
  if (await isChildSession(reads, key))
    throw new InvalidError('It is an invocation of an agent that another one called like a tool: replay that one.');
  const runs = toRuns(history, invocationId, await listTapes(reads, key, invocationId));
  if (runs.length === 0)
    throw new InvalidError('The runtime stored no event of its agent: there is nothing to replay.');
  checkServers(runs, options);
  const initial = (await findInitialState(reads, key)) ?? {};
  const result: Replay = {
    status: 'same',
    events: 0,
    liveModelCalls: 0,
    liveToolCalls: 0,
    output: { before: '', after: '' },
    notes: [],
  };
  const { runtimeEventIds } = history;
  const attendedCalls = listAttendedCalls(history);
  const omissions: Omissions = { notCompared: new Set(), notMade: new Set(), hasHooks: false };
  for (const run of runs) {
    const state = stateBefore(run, history.state, initial);
    const taskAnswers = await listTaskAnswers(reads, key, listAnsweredQuestions(run.history));
    const confirmed = findConfirmations(run.history, runtimeEventIds, taskAnswers);
    const replayed = { run, key, invocationId, agent, state, runtimeEventIds, attendedCalls, confirmed };
    const player = await replayRun(context, replayed, options, signal);
    addRun(result, player, run);
    for (const reason of player.notCompared) omissions.notCompared.add(reason);
    for (const name of player.notMade) omissions.notMade.add(name);
    omissions.hasHooks ||= player.leftHooksOut;
    if (result.eventDifference || result.stopped !== undefined) break;
  }
  if (result.events === 0) omissions.notCompared.add('No event was compared.');
  const { used } = options.liveTokens;
  const notes = toNotes(history, invocationId, runs, omissions, options);
  return concluded({ ...result, notes, ...(used > 0 && { liveTokens: used }) }, omissions.notCompared.size > 0);
}

/** What the runs of a replay did not execute or compare. */
interface Omissions {
  notCompared: Set<string>;
  /** Tools whose live calls were not made. */
  notMade: Set<string>;
  hasHooks: boolean;
}

/** Refuses live tools if the request of the invocation brought its own MCP servers, because these are not stored. */
function checkServers(runs: TapeRun[], { tools, overrides }: ReplayOptions): void {
  if (tools === 'stored' || overrides.mcpServers || !runs.some(({ tape }) => tape?.payload.hasOwnServers)) return;
  throw new InvalidError(
    'The invocation had MCP servers of its own, whose addresses and headers are not kept: ' +
      'replay it with stored tools, or name servers in `harness`.',
  );
}

function addRun(result: Replay, player: Player, { events }: TapeRun): void {
  const { first, firstEvent, compared } = player.differences;
  result.events += compared;
  result.liveModelCalls += player.liveModelCalls;
  result.liveToolCalls += player.liveToolCalls;
  if (first) result.difference ??= toShown(first);
  if (firstEvent) result.eventDifference ??= toShown(firstEvent);
  if (player.stopped !== undefined) result.stopped = player.stopped;
  const before = events.map(({ event }) => getAnswerText(event.content)).findLast((text) => text !== '');
  result.breaks = addBreaks(result.breaks, player.breaks);
  result.output = { before: shorten(before ?? ''), after: shorten(player.output) };
}

/** Maximum number of different breaks in the result of a replay. */
const MAX_BREAKS = 100;

/** Counts breaks that are alike as one. */
function addBreaks(before: Replay['breaks'] = [], more: Player['breaks']): Replay['breaks'] {
  const all = [...before];
  for (const { event, stored, broken } of more) {
    const { part, why } = broken;
    const agent = event.author ?? '';
    const known = all.find((one) => one.agent === agent && one.part === part && one.why === why);
    if (known) known.count += 1;
    else if (all.length < MAX_BREAKS) {
      const id = stored?.event.id;
      const place = stored && { sequence: stored.sequence, ...(id && { eventId: id }) };
      all.push({ kind: toBreakKind(broken), agent, part, why: shorten(why), count: 1, ...place });
    }
  }
  return all.length > 0 ? all : undefined;
}

const toShown = (difference: ReplayDifference): ReplayDifference => ({
  ...difference,
  ...shortenPair(difference.before, difference.after),
});

/** Sets the status of the replay. Drops the event difference if it is also the first difference. */
function concluded({ eventDifference, ...result }: Replay, isIncomplete: boolean): Replay {
  if (!result.difference) {
    const status = isIncomplete ? 'not_compared' : 'same';
    return { ...result, status: result.stopped === undefined ? status : 'stopped' };
  }
  const { event, path } = result.difference;
  const isSame = eventDifference?.event === event && eventDifference.path === path;
  return { ...result, status: 'different', ...(eventDifference && !isSame ? { eventDifference } : {}) };
}

/** Returns sentences about what was not compared or not run. Those that decide the status come first. */
function toNotes(
  history: SessionHistory,
  invocationId: string,
  runs: TapeRun[],
  { notCompared, notMade, hasHooks }: Omissions,
  { model, tools }: ReplayOptions,
): string[] {
  const tapes = runs.flatMap(({ tape }) => tape ?? []);
  const unkept = [...new Set(tapes.flatMap(({ payload }) => payload.unkept))];
  const isForgotten = tapes.some(({ payload, prompts }) => payload.prompts.some(([, hash]) => !prompts.has(hash)));
  const declared = tapes.flatMap(({ prompts }) => [...prompts.values()].flatMap((prompt) => prompt.tools));
  const foreign = listSteps(history, invocationId).filter(({ isOwn, event }) => !isOwn && event.author !== 'user');
  const names = [...notMade].map((name) => `\`${name}\``).join(', ');
  return [
    ...[...notCompared].map((reason) => `Not compared: ${reason}`),
    ...(names === ''
      ? []
      : [
          `Calls of ${names} were not made, since people decide on them, or answer them, or they need a transaction: their ` +
            'answers are the stored ones.',
        ]),
    ...(foreign.length > 0 ? [`Events that a request brought under its id are left out: ${foreign.length}.`] : []),
    ...(hasHooks ? ['Hooks around what is stored are not run: what they would do now is not seen.'] : []),
    ...(isForgotten ? ['A prompt is not kept any more, or was too large: that it changed is seen, not where.'] : []),
    ...(unkept.length > 0 ? [`Present values stand for state that was too large to keep: ${unkept.join(', ')}.`] : []),
    ...(declared.some(({ calls }) => calls === 'agent')
      ? ['Agents that are tools are not run: their answers are the stored ones.']
      : []),
    ...(tools === 'stored' && declared.some(({ calls }) => calls === 'server')
      ? ['MCP servers are not asked: their tools are those of the tape.']
      : []),
    ...(model === 'live' && tools === 'stored' ? ['A call that the tape has no answer to ends the replay.'] : []),
  ];
}

/** Maximum length of a text in the result of a replay, in characters; longer texts are shortened. */
const MAX_TEXT = 4_000;
/** Number of characters shown before the first difference of two long texts. */
const CONTEXT = 200;

const shorten = (text: string): string =>
  text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… [${text.length - MAX_TEXT} characters left out]`;

/** Shortens two values. Two long texts are shown from shortly before their first difference. */
function shortenPair(before: unknown, after: unknown): { before: unknown; after: unknown } {
  if (typeof before === 'string' && typeof after === 'string') {
    const start = Math.max(commonLength(before, after) - CONTEXT, 0);
    const isLong = Math.max(before.length, after.length) > MAX_TEXT;
    const from = (text: string) => (isLong && start > 0 ? `…${text.slice(start)}` : text);
    return { before: shorten(from(before)), after: shorten(from(after)) };
  }
  return { before: shortenedValue(before), after: shortenedValue(after) };
}

/** Replaces a large value by the beginning of its JSON. */
function shortenedValue(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null';
  return text.length <= MAX_TEXT ? value : shorten(text);
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && length < other.length && one[length] === other[length]) length += 1;
  return length;
}
