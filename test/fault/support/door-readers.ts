import { setTimeout as sleep } from 'node:timers/promises';
import { toResponseId } from '../../../src/features/doors/openai/ids.ts';
import { readFrames } from '../../support/text-reader.ts';

/** A reader of one answer through a door: what it shows, over any number of connections. */
export interface DoorReader {
  /** The path of a connection that goes on where the last one ended, its headers, and its body where it is a POST. */
  next(): { path: string; body?: string; headers?: Record<string, string> };
  /** A connection has begun; a stream without its beginning would be read as more of the last. */
  begin(): void;
  /** Takes one frame. */
  takeFrame(frame: string): void;
  /** The answer so far. */
  readonly text: string;
  /** True once the door has said that it is over. */
  readonly isOver: boolean;
  faults: string[];
}

/** A reader under construction: `take` gets the data of a frame. */
type Taking = Omit<DoorReader, 'takeFrame' | 'text' | 'isOver'> & {
  take(data: Record<string, unknown>, type: string): void;
  text: string;
  isOver: boolean;
};

const toReader = (reader: Taking): DoorReader =>
  Object.assign(reader, {
    takeFrame: (frame: string) => {
      const type = /^event: *(.*)$/m.exec(frame)?.[1] ?? '';
      const data = [...frame.matchAll(/^data: *(.*)$/gm)].map(([, line]) => line).join('');
      if (data !== '' && data !== '[DONE]') reader.take(JSON.parse(data) as Record<string, unknown>, type);
    },
  });

/** Reads as `useChat` does: each connection begins the message anew, by its id. */
export function newChatReader(app: string, user: string, sessionId: string): DoorReader {
  const texts = new Map<string, string>();
  let step = new Set<string>();
  const reader: Taking = {
    text: '',
    isOver: false,
    faults: [],
    next: () => ({ path: `/ai-sdk/${app}/chat/${sessionId}/stream?user_id=${user}&startIndex=0&version=7` }),
    begin: () => texts.clear(),
    take({ type, id, delta }) {
      const name = String(id);
      if (type === 'start-step') step = new Set();
      else if (type === 'text-start') {
        if (texts.has(name)) reader.faults.push(`text ${name} began twice`);
        texts.set(name, '');
        step.add(name);
      } else if (type === 'text-delta') {
        if (!texts.has(name)) reader.faults.push(`text ${name} goes on without its beginning`);
        texts.set(name, (texts.get(name) ?? '') + String(delta));
      } else if (type === 'reset-step') {
        for (const each of step) texts.delete(each);
        step = new Set();
      } else if (type === 'finish') reader.isOver = true;
      reader.text = [...texts.values()].join('');
    },
  };
  return toReader(reader);
}

/** Reads as AG-UI's client does when it connects: the snapshot of the messages, then what comes. */
export function newThreadReader(app: string, user: string, threadId: string): DoorReader {
  const texts = new Map<string, string>();
  let count = 0;
  const reader: Taking = {
    text: '',
    isOver: false,
    faults: [],
    next: () => {
      const body = { threadId, runId: `r${++count}`, messages: [], tools: [], context: [], state: {} };
      return { path: `/ag-ui/${app}/connect?user_id=${user}`, body: JSON.stringify(body) };
    },
    begin: () => texts.clear(),
    take({ type, messageId, delta, messages }) {
      const id = String(messageId);
      if (type === 'MESSAGES_SNAPSHOT') {
        texts.clear();
        for (const message of messages as { id: string; role: string; content?: string }[])
          if (message.role === 'assistant') texts.set(message.id, message.content ?? '');
      } else if (type === 'TEXT_MESSAGE_START') {
        if (texts.has(id)) reader.faults.push(`message ${id} began twice`);
        texts.set(id, '');
      } else if (type === 'TEXT_MESSAGE_CONTENT') texts.set(id, (texts.get(id) ?? '') + String(delta));
      else if (type === 'RUN_FINISHED' || type === 'RUN_ERROR') reader.isOver = true;
      reader.text = [...texts.values()].join('');
    },
  };
  return toReader(reader);
}

/** Reads as a client of Durable Streams does: on behind the last offset, never back. */
export function newStreamReader(app: string, user: string, sessionId: string, invocationId: string): DoorReader {
  let offset = '-1';
  let open: { eventId: string; last: number; text: string; isWhole: boolean } | undefined;
  let events = '';
  /** What has come since the last offset: a connection that is cut before the next one brings it again. */
  let waiting: Record<string, Record<string, unknown>>[] = [];
  const say = (message: Record<string, Record<string, unknown>>) => {
    const { piece, event } = message;
    if (piece) {
      const { eventId, number, text } = piece as { eventId: string; number: number; text: string };
      if (open?.eventId !== eventId) open = { eventId, last: 0, text: '', isWhole: true };
      if (number <= open.last) reader.faults.push(`piece ${number} of ${eventId} came twice`);
      if (number !== open.last + 1) open.isWhole = false;
      open.last = number;
      open.text += text;
    } else if (event?.['author'] !== 'user') {
      const { parts = [] } = (event?.['content'] ?? {}) as { parts?: { text?: string }[] };
      const said = parts.map(({ text = '' }) => text).join('');
      if (open && open.eventId === event?.['id'] && open.isWhole && open.text !== said)
        reader.faults.push(`of an event came ${open.text.length} characters of ${said.length}`);
      events += said;
      open = undefined;
    }
    reader.text = events + (open?.text ?? '');
  };
  const stream = `/durable-streams/${app}/sessions/${sessionId}/invocations/${invocationId}`;
  const reader: Taking = {
    text: '',
    isOver: false,
    faults: [],
    next: () => ({ path: `${stream}?user_id=${user}&live=sse&offset=${offset}` }),
    begin: () => void (waiting = []),
    take(data, type) {
      if (type === 'control') {
        const next = String(data['streamNextOffset']);
        if (offset !== '-1' && next < offset) reader.faults.push(`offset ${next} comes after ${offset}`);
        offset = next;
        for (const message of waiting) say(message);
        waiting = [];
        reader.isOver = data['streamClosed'] === true;
        return;
      }
      waiting.push(...(data as unknown as typeof waiting));
    },
  };
  return toReader(reader);
}

/** Reads as a client of the Responses API does: on behind the last number, from the beginning where it is told so. */
export function newResponseReader(app: string, user: string, sessionId: string, invocationId: string): DoorReader {
  const id = toResponseId({ key: { appName: app, userId: user, sessionId }, invocationId });
  const seen = new Map<number, string>();
  let last = -1;
  const reader: Taking = {
    text: '',
    isOver: false,
    faults: [],
    next: () => ({ path: `/v1/responses/${id}?stream=true&starting_after=${last}` }),
    begin: () => undefined,
    take(event) {
      const number = event['sequence_number'] as number;
      if (event['type'] === 'error') {
        last = -1;
        reader.text = '';
        return;
      }
      if (number <= last) reader.faults.push(`event ${number} comes after ${last}`);
      last = number;
      const said = JSON.stringify(event);
      if ((seen.get(number) ?? said) !== said) reader.faults.push(`two events have the number ${number}`);
      seen.set(number, said);
      if (event['type'] === 'response.output_text.delta') reader.text += String(event['delta']);
      reader.isOver = event['type'] === 'response.completed';
    },
  };
  return toReader(reader);
}

/**
 * Reads until the door says that it is over, over one connection after another, each cut after some bytes.
 * @returns how many connections
 */
export async function readDoor(reader: DoorReader, pickUrl: () => string, pickBytes: () => number): Promise<number> {
  let connections = 0;
  while (!reader.isOver) {
    connections += 1;
    const { path, body, headers = {} } = reader.next();
    const leave = new AbortController();
    const init =
      body === undefined ? { headers } : { method: 'POST', body, headers: { 'content-type': 'application/json' } };
    try {
      const response = await fetch(pickUrl() + path, { ...init, signal: leave.signal });
      if (response.status !== 200) throw new Error(`${path} answered ${response.status}`);
      reader.begin();
      for await (const frame of readFrames(response, pickBytes())) {
        reader.takeFrame(frame);
        if (reader.isOver) break;
      }
    } catch {
      await sleep(50); // the replica is gone: another one goes on
    }
    leave.abort();
  }
  return connections;
}
