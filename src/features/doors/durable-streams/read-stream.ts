import { once } from 'node:events';
import type { Request, Response } from 'express';
import { InvalidError, type NotFoundError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { listEventsAfter } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { followSession } from '../../../invocations/follow.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { INT32_MAX } from '../../../platform/http/operation/parameters.ts';
import { readTurn, readWhole, type TurnStep } from '../turn.ts';

/** Events of one answer, which its bytes make fewer. */
const PAGE = 100;
/** Times after which a reader asks again. */
const LONG_POLL_MS = 20_000;
const SSE_MS = 60_000;
/** Cursors count intervals, so that readers of one moment share what a cache in front has. */
const CURSOR_EPOCH_MS = Date.UTC(2024, 9, 9);
const CURSOR_INTERVAL_MS = 20_000;
const MAX_JITTER = 180;
const CACHEABLE = 'private, max-age=60, stale-while-revalidate=300';
const DIGITS = 10;
const OFFSET = /^(\d{10})_(\d{10})$/;

/** A stream: the events of a session, or text and events of one of its invocations. */
export interface Source {
  key: SessionKey;
  invocationId?: string;
}

/** Query and headers of a read. */
export interface Asked {
  offset?: string | undefined;
  live?: 'long-poll' | 'sse' | undefined;
  cursor?: string | undefined;
  'if-none-match'?: string | undefined;
}

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

/** Answers a read of a stream, as its protocol says. */
export async function sendStream(
  context: InvocationContext,
  source: Source,
  asked: Asked,
  { request, response, notFound }: { request: Request; response: Response; notFound: () => NotFoundError },
): Promise<{ kind: 'sent' }> {
  const { live, offset = '-1' } = asked;
  if (live && asked.offset === undefined) throw new InvalidError('offset: a live read must say where it begins.');
  if (offset !== '-1' && offset !== 'now') toSequence(offset);
  const isHead = request.method === 'HEAD';
  const from = offset === '-1' ? toOffset(0) : offset;
  const page = await readPage(context, source, isHead ? 'now' : from);
  if (!page) throw notFound();
  response.setHeader('stream-next-offset', page.next);
  if (isHead || live !== 'sse') setState(response, page);
  if (isHead) response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' }).end();
  else if (live === 'sse') await sendLive(context, source, page, { asked, response });
  else if (live) await sendPoll(context, source, page, { asked, response });
  else sendPage(page, { asked, from, response });
  return { kind: 'sent' };
}

function setState(response: Response, { next, isUpToDate, isClosed }: Page): void {
  response.setHeader('stream-next-offset', next);
  if (isUpToDate) response.setHeader('stream-up-to-date', 'true');
  if (isClosed && isUpToDate) response.setHeader('stream-closed', 'true');
}

const toBody = (messages: Message[]) => `[${messages.map(({ text }) => text).join(',')}]`;

function sendPage(page: Page, { asked, from, response }: { asked: Asked; from: string; response: Response }): void {
  const end = page.isClosed && page.isUpToDate ? ':c' : '';
  const etag = `"${page.created}:${from}:${page.next}${end}"`;
  const isNow = from === 'now';
  response.setHeader('cache-control', isNow ? 'no-store' : CACHEABLE);
  if (!isNow) response.setHeader('etag', etag);
  if (!isNow && asked['if-none-match'] === etag) response.writeHead(304).end();
  else response.writeHead(200, { 'content-type': 'application/json' }).end(toBody(page.messages));
}

/** Answers with what there is; where there is nothing, with the next messages or at the end of the time. */
async function sendPoll(
  context: InvocationContext,
  source: Source,
  page: Page,
  { asked, response }: { asked: Asked; response: Response },
): Promise<void> {
  response.setHeader('cache-control', 'no-store');
  response.setHeader('stream-cursor', toCursor(asked.cursor));
  let found = page;
  if (page.messages.length === 0 && page.isUpToDate && !page.isClosed) {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, context.draining, AbortSignal.timeout(LONG_POLL_MS)]);
    for await (const messages of follow(context, source, page.next, signal)) {
      found = { ...page, messages, next: messages.at(-1)?.offset ?? page.next };
      break;
    }
    // Whether that was the last one, too.
    if (!gone.signal.aborted) found = { ...found, isClosed: await isEnded(context, source, found.next) };
    setState(response, found);
  }
  if (found.messages.length === 0) response.writeHead(204).end();
  else response.writeHead(200, { 'content-type': 'application/json' }).end(toBody(found.messages));
}

/** Sends what there is and what comes, for a minute: the client comes back. */
async function sendLive(
  context: InvocationContext,
  source: Source,
  first: Page,
  { asked, response }: { asked: Asked; response: Response },
): Promise<void> {
  const stream = openEventStream(response, { comments: true });
  const signal = AbortSignal.any([stream.signal, context.draining, AbortSignal.timeout(SSE_MS)]);
  let cursor = toCursor(asked.cursor);
  const send = async ({ messages, next, isUpToDate, isClosed }: Omit<Page, 'created'>) => {
    if (messages.length > 0) await stream.send(toBody(messages), undefined, 'data');
    const isEnd = isClosed && isUpToDate;
    const state = { ...(isUpToDate ? { upToDate: true } : {}), ...(isEnd ? { streamClosed: true } : {}) };
    const control = { streamNextOffset: next, ...(isEnd ? {} : { streamCursor: cursor }), ...state };
    await stream.send(JSON.stringify(control), undefined, 'control');
    cursor = toCursor(cursor);
    return isEnd;
  };
  let page: Page | undefined = first;
  let isEnd = await send(first);
  while (!isEnd && !signal.aborted && page && !page.isUpToDate) {
    page = await readPage(context, source, page.next);
    isEnd = !page || (await send(page));
  }
  let { next } = page ?? first;
  if (!isEnd)
    for await (const messages of follow(context, source, next, signal)) {
      next = messages.at(-1)?.offset ?? next;
      await send({ messages, next, isUpToDate: true, isClosed: false });
    }
  if (!isEnd && !signal.aborted && (await isEnded(context, source, next)))
    await send({ messages: [], next, isUpToDate: true, isClosed: true });
  stream.end();
  if (!response.writableFinished && !stream.signal.aborted) await once(response, 'close').catch(() => undefined);
}

/** Reads whole events behind a place; `undefined` where there is no such stream. */
async function readPage(context: InvocationContext, source: Source, offset: string): Promise<Page | undefined> {
  const { key, invocationId } = source;
  const isClosed = await hasEnded(context, source);
  if (isClosed === undefined) return undefined;
  const after = offset === 'now' ? INT32_MAX : toSequence(offset);
  const found = await listEventsAfter(context.database.db, key, after, PAGE);
  if (!found) return undefined;
  const { events, lastSequence, createTime: created } = found;
  const last = events.at(-1)?.sequence ?? after;
  const messages = events
    .filter((event) => invocationId === undefined || event.invocationId === invocationId)
    .flatMap(({ sequence, text }) => toMessages(source, text, sequence))
    .filter((message) => message.offset > offset);
  const start = offset === 'now' ? toOffset(lastSequence) : offset;
  const next = events.length > 0 ? toOffset(last) : start;
  return { messages, next, isUpToDate: last >= lastSequence, isClosed, created };
}

function toMessages({ invocationId }: Source, text: string, sequence: number): Message[] {
  if (invocationId === undefined) return [{ offset: toOffset(sequence), text }];
  return [...readWhole(JSON.parse(text) as Event, sequence)].flatMap(toMessage);
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

/** Yields messages behind a place as they come, until the stream is closed or `signal` aborts. */
async function* follow(
  context: InvocationContext,
  { key, invocationId }: Source,
  offset: string,
  signal: AbortSignal,
): AsyncGenerator<Message[]> {
  const after = toSequence(offset);
  if (invocationId === undefined) {
    for await (const step of followSession(context, key, { sequence: after, delta: 0 }, signal))
      if (step.kind === 'event') yield [{ offset: toOffset(step.sequence), text: step.text }];
    return;
  }
  let place = offset;
  for await (const step of readTurn(context, { key, invocationId, after }, signal)) {
    // Offsets never go back, also where text was taken back: the event brings what the next attempt has up to there.
    const messages = toMessage(step).filter((message) => message.offset > place);
    place = messages.at(-1)?.offset ?? place;
    if (messages.length > 0) yield messages;
  }
}

/** True where a stream gets no messages any more; `undefined` where there is none. */
async function hasEnded({ feeds }: InvocationContext, { key, invocationId }: Source): Promise<boolean | undefined> {
  if (invocationId === undefined) return false;
  const invocation = await feeds.readInvocation(key, invocationId);
  return invocation && !['queued', 'running', 'paused'].includes(invocation.status);
}

/** True where a reader at a place has all that a stream will ever have. */
async function isEnded(context: InvocationContext, source: Source, offset: string): Promise<boolean> {
  const page = (await hasEnded(context, source)) ? await readPage(context, source, offset) : undefined;
  return page !== undefined && page.isUpToDate && page.messages.length === 0;
}

/** Returns the cursor of an answer: it never goes back, also where the client's is of the future. */
function toCursor(sent: string | undefined): string {
  const now = Math.floor((Date.now() - CURSOR_EPOCH_MS) / CURSOR_INTERVAL_MS);
  const before = Number(sent ?? -1);
  if (!Number.isSafeInteger(before) || before < now) return String(now);
  return String(before + 1 + Math.floor(Math.random() * MAX_JITTER));
}
