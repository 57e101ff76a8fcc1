import { once } from 'node:events';
import type { Response } from 'express';
import type { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { listEventsAfter } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { followSession } from '../../../invocations/follow.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { INT32_MAX } from '../../../platform/http/operation/parameters.ts';
import { DEEDS } from '../deeds.ts';
import type { InvocationRef } from '../handle.ts';
import { readTurn, readWhole, type TurnStep } from '../turn.ts';
import type { readHeaders, readQuery } from './routes.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Events of one answer, which its bytes make fewer. */
const PAGE = 100;
/** Times after which a reader asks again. */
const LONG_POLL_MS = 20_000;
const SSE_MS = 60_000;
/** Cursors count intervals, so that readers of one moment share what a cache in front has. */
const CURSOR_EPOCH_MS = Date.UTC(2024, 9, 9);
const CURSOR_INTERVAL_MS = 20_000;
const MAX_JITTER = 180;
/** A browser asks each time whether it may show it again: to another user, or after a deletion, it may not. */
const CACHEABLE = 'private, no-cache';
const DIGITS = 10;
const OFFSET = /^(\d{10})_(\d{10})$/;

type ReadCall = Call<unknown, z.output<typeof readQuery>, z.output<typeof readHeaders>, unknown>;

/** A message with the place behind it. */
interface Message {
  offset: string;
  text: string;
}

/** The messages that there are behind a place, and where the next ones begin. */
interface Page {
  messages: Message[];
  next: string;
  isUpToDate: boolean;
  /** True where none will come any more. */
  isClosed: boolean;
  /** Time of the session's creation: another one of its name is another stream. */
  created: string;
}

const toOffset = (sequence: number, piece = 0) =>
  [sequence, piece].map((number) => String(number).padStart(DIGITS, '0')).join('_');

function toSequence(offset: string): number {
  const sequence = Number(OFFSET.exec(offset)?.[1] ?? Infinity);
  if (sequence > INT32_MAX)
    throw new InvalidError('offset: it must be `-1`, `now` or the `Stream-Next-Offset` of an answer.');
  return sequence;
}

/** Answers a read as the protocol says: of the events of a session, or of the text and the events of an invocation. */
export async function sendStream(
  context: InvocationContext,
  source: InvocationRef,
  call: ReadCall,
): Promise<{ kind: 'sent' }> {
  const { live, offset = '-1' } = call.query;
  if (live && call.query.offset === undefined) throw new InvalidError('offset: a live read must say where it begins.');
  if (offset !== '-1' && offset !== 'now') toSequence(offset);
  const isHead = call.request.method === 'HEAD';
  // A page of what there is counts as one of events does.
  if (!live && !isHead) await call.countAgain(DEEDS.read.load);
  const from = offset === '-1' ? toOffset(0) : offset;
  const page = await readPage(context, source, isHead ? 'now' : from);
  if (!page) throw call.notFound();
  if (isHead) send(call.response, page, { isBare: true, cache: 'no-store' });
  else if (live === 'sse') await sendLive(context, source, page, call);
  else if (live) await sendPoll(context, source, page, call);
  else sendPage(page, from, call);
  return { kind: 'sent' };
}

const toBody = (messages: Message[]) => `[${messages.map(({ text }) => text).join(',')}]`;

/** Ends a response: without messages where it `isBare`, with another status than 200 where that says all. */
function send(
  response: Response,
  { messages, next, isUpToDate, isClosed }: Page,
  { cache, status = 200, isBare = status !== 200 }: { cache: string; status?: number; isBare?: boolean },
): void {
  response.setHeader('cache-control', cache);
  response.setHeader('stream-next-offset', next);
  if (isUpToDate) response.setHeader('stream-up-to-date', 'true');
  if (isClosed && isUpToDate) response.setHeader('stream-closed', 'true');
  if (status === 200) response.setHeader('content-type', 'application/json');
  response.writeHead(status).end(isBare ? undefined : toBody(messages));
}

function sendPage(page: Page, from: string, { headers, response }: ReadCall): void {
  if (from === 'now') return send(response, page, { cache: 'no-store' });
  const etag = `"${page.created}:${from}:${page.next}${page.isClosed && page.isUpToDate ? ':c' : ''}"`;
  response.setHeader('etag', etag).vary('Authorization');
  send(response, page, { cache: CACHEABLE, status: headers['if-none-match'] === etag ? 304 : 200 });
}

/** Answers with what there is; where there is nothing, with the next messages or at the end of the time. */
async function sendPoll(
  context: InvocationContext,
  source: InvocationRef,
  page: Page,
  { query, response }: ReadCall,
): Promise<void> {
  response.setHeader('stream-cursor', toCursor(query.cursor));
  let found = page;
  if (page.messages.length === 0 && page.isUpToDate && !page.isClosed) {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, context.draining, AbortSignal.timeout(LONG_POLL_MS)]);
    for await (const more of follow(context, source, page.next, signal)) {
      found = { ...page, ...more };
      break;
    }
  }
  send(response, found, { cache: 'no-store', status: found.messages.length === 0 ? 204 : 200 });
}

/** Sends what there is and what comes, for a minute: the client comes back. */
async function sendLive(
  context: InvocationContext,
  source: InvocationRef,
  first: Page,
  { query, response }: ReadCall,
): Promise<void> {
  const stream = openEventStream(response, { comments: true, isJoined: true });
  const signal = AbortSignal.any([stream.signal, context.draining, AbortSignal.timeout(SSE_MS)]);
  let cursor = toCursor(query.cursor);
  let page: Page | undefined = first;
  const sendNext = async ({ messages, next, isUpToDate, isClosed }: Page) => {
    if (messages.length > 0) await stream.send(toBody(messages), undefined, 'data');
    const isEnd = isClosed && isUpToDate;
    const state = { ...(isUpToDate ? { upToDate: true } : {}), ...(isEnd ? { streamClosed: true } : {}) };
    const control = { streamNextOffset: next, ...(isEnd ? {} : { streamCursor: cursor }), ...state };
    await stream.send(JSON.stringify(control), undefined, 'control');
    cursor = toCursor(cursor);
  };
  await sendNext(first);
  while (page && !page.isUpToDate && !signal.aborted) {
    page = await readPage(context, source, page.next);
    if (page) await sendNext(page);
  }
  if (page?.isUpToDate && !page.isClosed)
    for await (const more of follow(context, source, page.next, signal)) await sendNext({ ...page, ...more });
  stream.end();
  if (!response.writableFinished && !stream.signal.aborted) await once(response, 'close').catch(() => undefined);
}

/** Reads whole events behind a place; `undefined` where there is no such stream. */
async function readPage(context: InvocationContext, source: InvocationRef, offset: string): Promise<Page | undefined> {
  const { key, invocationId } = source;
  const isClosed = await hasEnded(context, source);
  if (isClosed === undefined) return undefined;
  const after = offset === 'now' ? INT32_MAX : toSequence(offset);
  const found = await listEventsAfter(context.database.db, key, after, PAGE);
  if (!found) return undefined;
  const { events, lastSequence, createTime: created } = found;
  const last = events.at(-1)?.sequence ?? after;
  const messages = events
    .filter((event) => invocationId === '' || event.invocationId === invocationId)
    .flatMap(({ sequence, text }) => toMessages(source, text, sequence))
    .filter((message) => message.offset > offset);
  const start = offset === 'now' ? toOffset(lastSequence) : offset;
  const next = events.length > 0 ? toOffset(last) : start;
  return { messages, next, isUpToDate: last >= lastSequence, isClosed, created };
}

function toMessages({ invocationId }: InvocationRef, text: string, sequence: number): Message[] {
  if (invocationId === '') return [{ offset: toOffset(sequence), text }];
  return [...readWhole(parseExactJson(text) as Event, sequence)].flatMap(toMessage);
}

/** Converts a step to a message; text that is taken back is replaced by the event that comes. */
function toMessage(step: TurnStep): Message[] {
  if (step.kind === 'event') return [{ offset: toOffset(step.sequence), text: JSON.stringify({ event: step.event }) }];
  if (step.kind !== 'text') return [];
  const { eventId, number, part, isThought, text, after } = step;
  return [
    { offset: toOffset(after, number), text: JSON.stringify({ piece: { eventId, number, part, isThought, text } }) },
  ];
}

/** Yields messages behind a place as they come, and at last that no more will, until `signal` aborts. */
async function* follow(
  context: InvocationContext,
  { key, invocationId }: InvocationRef,
  offset: string,
  signal: AbortSignal,
): AsyncGenerator<Pick<Page, 'messages' | 'next' | 'isClosed'>> {
  const after = toSequence(offset);
  if (invocationId === '') {
    for await (const { kind, position, text } of followSession(context, key, { sequence: after, delta: 0 }, signal)) {
      const next = toOffset(position.sequence);
      if (kind === 'event') yield { messages: [{ offset: next, text }], next, isClosed: false };
    }
    return;
  }
  let next = offset;
  for await (const step of readTurn(context, { key, invocationId, after, throughPauses: true }, signal)) {
    const isClosed = step.kind === 'end';
    // Offsets never go back, also where text was taken back: the event brings what the next attempt has up to there.
    const messages = toMessage(step).filter((message) => message.offset > next);
    next = messages.at(-1)?.offset ?? next;
    if (messages.length > 0 || isClosed) yield { messages, next, isClosed };
  }
}

/** True where a stream gets no messages any more; `undefined` where there is none. */
async function hasEnded(
  { feeds }: InvocationContext,
  { key, invocationId }: InvocationRef,
): Promise<boolean | undefined> {
  if (invocationId === '') return false;
  const invocation = await feeds.readInvocation(key, invocationId);
  return invocation && !['queued', 'running', 'paused'].includes(invocation.status);
}

/** Returns the cursor of an answer: it never goes back, also where the client's is of the future. */
function toCursor(sent: string | undefined): string {
  const now = Math.floor((Date.now() - CURSOR_EPOCH_MS) / CURSOR_INTERVAL_MS);
  const before = Number(sent ?? -1);
  if (!Number.isSafeInteger(before) || before < now) return String(now);
  return String(before + 1 + Math.floor(Math.random() * MAX_JITTER));
}
