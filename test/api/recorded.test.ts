import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Answer, testApp } from '../support/app.ts';

/**
 * Requests that were recorded on real ADK servers, sent again in their order: each answer equals that of one of the
 * two servers, or its difference stands below with the reason. `ADK_RECORDED` names another file of the same form.
 */

interface RecordedAnswer {
  status: number;
  type: string;
  allow?: string;
  location?: string;
  body?: unknown;
  frames?: unknown[];
  text?: string;
}

interface RecordedCase {
  id: string;
  method: string;
  path: string;
  body?: unknown;
  raw?: string;
  headers?: Record<string, string>;
  /** Names a value that later cases use, and the member of the answer that it is. */
  save?: Record<string, string>;
  /** Values that later cases use. */
  set?: Record<string, string>;
  /** Only the kinds of the members count. */
  shapeOnly?: boolean;
  onlyKeys?: string[];
  onlyType?: boolean;
  /** The member that a list is sorted by before it is compared. */
  unordered?: string;
  /** Partial events are compared as one shape: how many there are is the model's choice. */
  partials?: boolean;
  accepted?: { status: number; reason: string };
  answers: Record<'adk22' | 'adk213', RecordedAnswer>;
}

const file = process.env['ADK_RECORDED'] ?? new URL('../data/adk-server/recorded.json', import.meta.url);
const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: RecordedCase[] };

/** What differs on purpose beyond the reasons that the recording itself gives, by the id of the case. */
const DIFFERENCES: Record<string, string> = {
  root: 'A page says what answers here, and links to the UI; ADK leads to it at once.',
  'sse-streaming-tool':
    'Which answers come in partial events is the choice of the model: the recorded one streamed its call and not the ' +
    'answer after the tool, the offline one streams text only.',
};

const app = testApp({ TOOLS: 'calculator,write_state,save_artifact,current_time' });
const user = 'recorded-user';
const values: Record<string, string> = { app: 'harness_agent', u: user, tag: 'theme' };
const fill = (text: string) => text.replaceAll(/\{\{(\w+)\}\}/g, (all, name: string) => values[name] ?? all);

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** A value with what differs from run to run replaced, as the recording has it. */
function normalize(value: unknown, name = ''): unknown {
  if (name === 'usageMetadata') return '<usage>';
  if (name === 'timestamp' || name === 'lastUpdateTime') return '<time>';
  if (Array.isArray(value)) return value.map((each) => normalize(each));
  if (typeof value === 'string') return normalizeText(value, name);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).map(
    ([key, member]) => [normalizeText(key, ''), normalize(member, key)] as const,
  );
  return Object.fromEntries(members.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function normalizeText(text: string, name: string): string {
  if (name === 'id' && (UUID.test(text) || text.startsWith('adk-'))) return '<id>';
  if (name === 'invocationId' && (UUID.test(text.slice(2)) || text === '')) return '<invocation>';
  if (text === user) return '<u>';
  if (text === `app:t${values['tag']}`) return 'app:<tag>';
  // The offline model and the recorded one agree only where they repeat a tool's answer.
  if (name === 'text' && text.startsWith('I am the offline model')) return '<model text>';
  return text;
}

/** The kinds of a value's members. */
function shapeOf(value: unknown): unknown {
  if (value === null) return '<null>';
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  if (typeof value !== 'object') return `<${typeof value}>`;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shapeOf(member)]));
}

/** The events of a stream; with `partials` a run of partial events is one entry with the shape of the first. */
function framesOf(text: string, partials: boolean): unknown[] {
  const events = text
    .split('\n\n')
    .filter((frame) => frame.startsWith('data: '))
    .map((frame) => normalize(JSON.parse(frame.slice('data: '.length))) as Record<string, unknown>);
  if (!partials) return events;
  const isPartial = (event: Record<string, unknown> | undefined) => event?.['partial'] === true;
  return events
    .filter((event, index) => !isPartial(event) || !isPartial(events[index - 1]))
    .map((event) => {
      if (!isPartial(event)) return event;
      return { partialFrames: 'some', shape: { ...event, content: { role: 'model', parts: '<pieces>' } } };
    });
}

/** Our answer in the form of the recording. */
function toRecorded(sent: RecordedCase, answer: Answer): RecordedAnswer {
  const type = (answer.headers.get('content-type') ?? '').split(';')[0] ?? '';
  const location = answer.headers.get('location');
  const recorded: RecordedAnswer = { status: answer.status, type, ...(location === null ? {} : { location }) };
  if (sent.onlyType) return recorded;
  if (type === 'text/event-stream') return { ...recorded, frames: framesOf(answer.text, sent.partials === true) };
  if (type !== 'application/json') return { ...recorded, text: answer.text };
  if (sent.shapeOnly) return { ...recorded, body: shapeOf(answer.body) };
  if (sent.onlyKeys) {
    const members = answer.body as Record<string, unknown>;
    return { ...recorded, body: Object.fromEntries(sent.onlyKeys.map((name) => [name, members[name]])) };
  }
  return { ...recorded, body: sorted(sent, normalize(answer.body)) };
}

/** Compared as text: keys in one order, lists of which the order does not count sorted. */
function sorted({ unordered }: RecordedCase, body: unknown): unknown {
  if (!unordered || !Array.isArray(body)) return body;
  const key = (each: unknown) => String((each as Record<string, unknown>)[unordered]);
  return body.toSorted((a, b) => (key(a) < key(b) ? -1 : 1));
}

async function send(recorded: RecordedCase): Promise<Answer> {
  const body = recorded.raw ?? (recorded.body === undefined ? undefined : fill(JSON.stringify(recorded.body)));
  const type: Record<string, string> = recorded.body === undefined ? {} : { 'content-type': 'application/json' };
  return app.send(recorded.method, fill(recorded.path), body, { ...type, ...recorded.headers });
}

describe(`${cases.length} recorded requests`, () => {
  test.each(cases.map((each) => [each.id, each] as const))('%s', async (id, recorded) => {
    Object.assign(values, recorded.set);
    const answer = await send(recorded);
    for (const [name, member] of Object.entries(recorded.save ?? {})) {
      values[name] = String((answer.body as Record<string, unknown>)[member]);
    }
    const ours = toRecorded(recorded, answer);
    // FastAPI names the methods of the first route of a path only, we name all.
    const theirs = Object.values(recorded.answers).map(({ allow, ...each }) => {
      if (allow !== undefined) expect((answer.headers.get('allow') ?? '').split(', ')).toContain(allow);
      return each.body === undefined ? each : { ...each, body: sorted(recorded, each.body) };
    });
    const isEqual = theirs.some((each) => JSON.stringify(normalize(each)) === JSON.stringify(normalize(ours)));
    if (recorded.accepted) {
      expect([id, ours.status, isEqual]).toEqual([id, recorded.accepted.status, false]);
    } else if (id in DIFFERENCES) {
      expect([id, 'still differs', isEqual]).toEqual([id, 'still differs', false]);
    } else if (!isEqual) {
      expect(normalize(ours)).toEqual(normalize(theirs[0]));
    }
  });
});
