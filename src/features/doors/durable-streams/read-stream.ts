import { once } from 'node:events';
import { isActive } from '../../../invocations/invocation.ts';
import type { Response } from 'express';
import { InvalidError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { listEventsAfter } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { followSession } from '../../../invocations/follow.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { INT32_MAX } from '../../../platform/http/operation/parameters.ts';
import { ACTIONS } from '../actions.ts';
import type { InvocationRef } from '../handle.ts';
import { readTurn, readWhole, type TurnStep } from '../turn.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum number of events per response. A response has fewer if the read reaches its byte limit. */
const PAGE = 100;
/** Maximum duration of a long poll and of a stream of server-sent events. The client then sends another request. */
const LONG_POLL_MS = 20_000;
const SSE_MS = 60_000;
/** Cursors count intervals since this time: clients that poll in the same one share a URL, so a cache can answer. */
const CURSOR_EPOCH_MS = Date.UTC(2024, 9, 9);
const CURSOR_INTERVAL_MS = 20_000;
const MAX_JITTER = 180;
/** Browsers must revalidate a cached page, because it must not be shown to another user or after its deletion. */
const CACHEABLE = 'private, no-cache';
const DIGITS = 10;
const OFFSET = /^(\d{10})_(\d{10})$/;

type ReadCall = Call<
  unknown,
  { offset?: string | undefined; live?: 'long-poll' | 'sse' | undefined; cursor?: string | undefined },
  { 'if-none-match'?: string | undefined },
  unknown
>;

/** A message of a stream, and the offset at which the next message starts. */
interface Message {
  offset: string;
  text: string;
}

/** Messages after an offset, and the offset of the next read. */
interface Page {
  messages: Message[];
  next: string;
  isUpToDate: boolean;
  isClosed: boolean;
  /** Creation time of the session: a later session with the same name is another stream. */
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

/** Responds to a read of Durable Streams: a session's stream has events; an invocation's also has pieces of text. */
export async function sendStream(
  context: InvocationContext,
  source: InvocationRef,
  call: ReadCall,
): Promise<{ kind: 'sent' }> {
  const { live, offset = '-1' } = call.query;
  if (live && call.query.offset === undefined) throw new InvalidError('offset: a live read must say where it begins.');
  if (offset !== '-1' && offset !== 'now') toSequence(offset);
  const isHead = call.request.method === 'HEAD';
  // A read of stored messages is charged to the rate limit for large reads.
  if (!live && !isHead) await call.countAgain(ACTIONS.read.load);
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

/** Sends a page of messages. The body is empty if `isBare` is true or the status is not 200. */
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

/** Long poll: responds immediately if there are messages, otherwise when messages come, or with 204 at the timeout. */
async function sendPoll(
  context: InvocationContext,
  source: InvocationRef,
  page: Page,
  { query, response }: ReadCall,
): Promise<void> {
  response.setHeader('stream-cursor', toCursor(query.cursor));
  let result = page;
  if (page.messages.length === 0 && page.isUpToDate && !page.isClosed) {
    const disconnect = new AbortController();
    response.once('close', () => disconnect.abort());
    const signal = AbortSignal.any([disconnect.signal, context.draining, AbortSignal.timeout(LONG_POLL_MS)]);
    for await (const update of follow(context, source, page.next, signal)) {
      result = { ...page, ...update };
      break;
    }
  }
  send(response, result, { cache: 'no-store', status: result.messages.length === 0 ? 204 : 200 });
}

/** Streams existing and new messages for a minute; the client then reconnects. */
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
    for await (const update of follow(context, source, page.next, signal)) await sendNext({ ...page, ...update });
  stream.end();
  if (!response.writableFinished && !stream.signal.aborted) await once(response, 'close').catch(() => undefined);
}

/** Reads the stored, complete events after an offset; `undefined` if the stream does not exist. */
async function readPage(context: InvocationContext, source: InvocationRef, offset: string): Promise<Page | undefined> {
  const { key, invocationId } = source;
  const isClosed = await hasEnded(context, source);
  if (isClosed === undefined) return undefined;
  const after = offset === 'now' ? INT32_MAX : toSequence(offset);
  const page = await listEventsAfter(context.database.db, key, after, PAGE);
  if (!page) return undefined;
  const { events, lastSequence, createTime: created } = page;
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

/** A retracted text gives no message, because the next event replaces all pieces of text before it. */
function toMessage(step: TurnStep): Message[] {
  if (step.kind === 'event') return [{ offset: toOffset(step.sequence), text: JSON.stringify({ event: step.event }) }];
  if (step.kind !== 'text') return [];
  const { eventId, number, part, isThought, text, after } = step;
  return [
    { offset: toOffset(after, number), text: JSON.stringify({ piece: { eventId, number, part, isThought, text } }) },
  ];
}

/** Yields new messages after an offset until the stream is closed or `signal` aborts. */
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
    // Offsets must rise: after a retraction, pieces with used offsets are skipped; the complete event has their text.
    const messages = toMessage(step).filter((message) => message.offset > next);
    next = messages.at(-1)?.offset ?? next;
    if (messages.length > 0 || isClosed) yield { messages, next, isClosed };
  }
}

/** True if the stream is closed; `undefined` if the stream does not exist. */
async function hasEnded(
  { feeds }: InvocationContext,
  { key, invocationId }: InvocationRef,
): Promise<boolean | undefined> {
  if (invocationId === '') return false;
  const invocation = await feeds.readInvocation(key, invocationId);
  return invocation && !isActive(invocation) && invocation.status !== 'paused';
}

/** Returns a cursor greater than the client's cursor, even if the client's cursor lies in the future. */
function toCursor(clientCursor: string | undefined): string {
  const now = Math.floor((Date.now() - CURSOR_EPOCH_MS) / CURSOR_INTERVAL_MS);
  const before = Number(clientCursor ?? -1);
  if (!Number.isSafeInteger(before) || before < now) return String(now);
  return String(before + 1 + Math.floor(Math.random() * MAX_JITTER));
}
