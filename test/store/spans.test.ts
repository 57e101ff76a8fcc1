import { Writable } from 'node:stream';
import { sql } from 'drizzle-orm';
import pino from 'pino';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Span } from '../../src/observability/traces/span.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import {
  deleteOldSpans,
  findEventTraceText,
  insertSpans,
  listSessionSpansText,
} from '../../src/observability/traces/span-store.ts';
import { createTracing, type TracingOptions } from '../../src/observability/traces/tracing.ts';
import { toLogFields } from '../../src/platform/log.ts';
import { agent } from '../support/agent-fixtures.ts';
import { newKey, testPool } from '../support/store.ts';

const store = testPool();
const key = newKey();

const span = (id: string, more: Partial<Span> = {}): Span => ({
  key,
  traceId: 't',
  id,
  parentId: undefined,
  eventId: undefined,
  name: 'call_llm',
  startNs: 1_795_200_000_123_456_789n,
  endNs: 1_795_200_000_123_456_790n,
  attributes: {},
  ...more,
});
const list = async (scope = { appNames: [key.appName], userId: undefined as string | undefined }) =>
  listSessionSpansText(store.pool.db, scope, key.sessionId);
const idsOf = (text: string) => (JSON.parse(text) as { span_id: string }[]).map(({ span_id }) => span_id);
const count = async () => {
  const { rows } = await store.pool.db.execute<{ count: number }>(sql`select count(*)::int as count from spans`);
  return rows[0]?.count;
};

const other = { ...key, userId: 'other' };

beforeAll(async () => {
  for (const each of [key, other]) await insertSession(store.pool.db, each, {}, []);
});
beforeEach(() => store.pool.db.execute(sql`truncate spans`));

describe('spans', () => {
  test('nanoseconds keep every digit on the wire', async () => {
    await insertSpans(store.pool.db, [span('a')]);
    expect(await list()).toContain('1795200000123456789');
  });

  test('come in the order of their start, the outer one first', async () => {
    const at = (id: string, startNs: bigint, endNs: bigint) => span(id, { startNs, endNs });
    await insertSpans(store.pool.db, [at('c', 2n, 3n), at('b', 1n, 2n), at('a', 1n, 9n)]);
    expect(idsOf(await list())).toEqual(['a', 'b', 'c']);
  });

  test('one that is there already stays as it is', async () => {
    await insertSpans(store.pool.db, [span('a', { name: 'first' })]);
    await insertSpans(store.pool.db, [span('a', { name: 'second' }), span('b')]);
    const spans = JSON.parse(await list()) as { name: string }[];
    expect(spans.map(({ name }) => name)).toEqual(['first', 'call_llm']);
  });

  test('are those of the given applications, and of one user where one is given', async () => {
    await insertSpans(store.pool.db, [span('mine'), span('theirs', { key: other, eventId: 'e' })]);
    expect(idsOf(await list())).toEqual(['mine', 'theirs']);
    expect(idsOf(await list({ appNames: [key.appName], userId: key.userId }))).toEqual(['mine']);
    expect(idsOf(await list({ appNames: ['another', key.appName], userId: undefined }))).toHaveLength(2);
    expect(await list({ appNames: ['another'], userId: undefined })).toBe('[]');
    expect(await list({ appNames: [], userId: undefined })).toBe('[]');
    const scope = { appNames: [key.appName], userId: key.userId };
    expect(await findEventTraceText(store.pool.db, scope, 'e')).toBeUndefined();
    expect(await findEventTraceText(store.pool.db, { ...scope, userId: 'other' }, 'e')).toContain('"theirs"');
  });

  test('of a session that is being deleted are not stored', async () => {
    const gone = newKey();
    await insertSession(store.pool.db, gone, {}, []);
    let isStored = false;
    const { storing } = await store.pool.transaction(async (tx) => {
      await deleteSession(tx, gone);
      const inserted = insertSpans(store.pool.db, [span('late', { key: gone }), span('mine')]);
      const ended = inserted.then(() => (isStored = true));
      const waits = sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
      await expect.poll(async () => (await store.pool.db.execute(waits)).rows.length).toBe(1);
      expect(isStored).toBe(false);
      return { storing: ended };
    });
    await storing;
    expect([await count(), idsOf(await list())]).toEqual([1, ['mine']]);
  });

  test('that cannot be stored leave those of other sessions', async () => {
    const spans = [span('late', { key: other, endNs: 2n ** 70n }), span('mine')];
    await expect(insertSpans(store.pool.db, spans)).rejects.toThrow('Failed query');
    expect(idsOf(await list())).toEqual(['mine']);
  });

  test('of an event the latest one is its trace', async () => {
    const at = (id: string, startNs: bigint) => span(id, { startNs, eventId: 'e', attributes: { n: id } });
    await insertSpans(store.pool.db, [at('early', 1n), at('late', 2n)]);
    const text = await findEventTraceText(store.pool.db, { appNames: [key.appName], userId: undefined }, 'e');
    expect(JSON.parse(text ?? '')).toEqual({ n: 'late', span_id: 'late', trace_id: 't' });
  });
});

describe('deleteOldSpans', () => {
  test('deletes what is older, in several statements, and nothing else', async () => {
    await store.pool.db.execute(sql`
      insert into spans (app_name, user_id, session_id, trace_id, id, name, start_ns, end_ns, attributes, create_time)
      select 'a', 'u', 's', 't', n::text, 'x', 0, 0, '{}', clock_timestamp() - interval '73 hours'
      from generate_series(1, 2500) n`);
    await insertSpans(store.pool.db, [span('new')]);
    expect(await deleteOldSpans(store.pool.db, 74)).toBe(0);
    expect(await deleteOldSpans(store.pool.db, 72)).toBe(2500);
    expect(await count()).toBe(1);
    expect(await deleteOldSpans(store.pool.db, 72)).toBe(0);
  });

  test('several replicas may delete at once', async () => {
    await store.pool.db.execute(sql`
      insert into spans (app_name, user_id, session_id, trace_id, id, name, start_ns, end_ns, attributes, create_time)
      select 'a', 'u', 's', 't', n::text, 'x', 0, 0, '{}', clock_timestamp() - interval '73 hours'
      from generate_series(1, 3000) n`);
    const deleted = await Promise.all([1, 2, 3].map(() => deleteOldSpans(store.pool.db, 72)));
    expect(deleted.reduce((sum, each) => sum + each, 0)).toBe(3000);
  });
});

describe('createTracing', () => {
  const logged: string[] = [];
  const lines = new Writable({ write: (chunk, _, done) => (logged.push(String(chunk)), done()) });
  const log = pino({ base: null, serializers: { err: toLogFields } }, lines);
  beforeEach(() => void logged.splice(0));
  const HOUR = 3_600_000;
  const trace = (options: TracingOptions, invocations = 1) => {
    const tracing = createTracing(store.pool.db, log, { lingerMs: HOUR, ...options });
    for (let number = 0; number < invocations; number += 1) {
      const invocation = tracing.startInvocation({ key, invocationId: `e-${number}` });
      const secret = { modelName: 'm', instruction: 'SECRET', contents: [], tools: [], sampling: {} };
      const { signal } = new AbortController();
      invocation
        .modelCall(agent({ name: 'one' }), { ...secret, signal })
        .end({ id: `event-${number}`, invocationId: 'e', author: 'one' });
      invocation.end({ error: undefined, paused: false });
    }
    return tracing;
  };

  test('flush stores what has ended, close the rest', async () => {
    const tracing = trace({});
    expect(await count()).toBe(0);
    await tracing.flush();
    expect(await count()).toBe(3);
    tracing.startInvocation({ key, invocationId: 'later' }).end({ error: undefined, paused: false });
    await tracing.close();
    expect(await count()).toBe(4);
    expect(logged).toEqual([]);
  });

  test('stores by itself after a short while', async () => {
    const tracing = trace({ lingerMs: 1 });
    await expect.poll(count).toBe(3);
    await tracing.close();
  });

  test('more than one statement holds is stored in several', async () => {
    await trace({}, 150).close();
    expect(await count()).toBe(450);
  });

  test('what is too much is dropped and counted, never kept', async () => {
    // Four are on their way to the database, four wait, the ninth is one too many.
    const tracing = trace({ maxWaiting: 4 }, 3);
    await tracing.flush();
    expect(await count()).toBe(8);
    tracing.startInvocation({ key, invocationId: 'later' }).end({ error: undefined, paused: false });
    await tracing.close();
    expect(await count()).toBe(9);
    expect(logged).toEqual([expect.stringContaining('Dropped 1 spans')]);
  });

  test('flush waits for a batch that is on its way already', async () => {
    const tracing = trace({}, 50);
    await tracing.flush();
    expect(await count()).toBe(150);
    await tracing.close();
  });

  test('a database that refuses costs a line of the log, without what was in the spans', async () => {
    await store.pool.db.execute(sql`alter table spans rename to spans_away`);
    try {
      const tracing = trace({});
      await tracing.flush();
      await tracing.close();
      expect(logged).toEqual([expect.stringContaining('"code":"42P01"')]);
      expect(logged.join()).not.toContain('SECRET');
    } finally {
      await store.pool.db.execute(sql`alter table spans_away rename to spans`);
    }
  });

  test('a tool that answers after the end of its invocation does no harm', async () => {
    const tracing = createTracing(store.pool.db, log, { lingerMs: HOUR });
    const invocation = tracing.startInvocation({ key, invocationId: 'e' });
    const answered = invocation.toolCall('one', { id: 'c', name: 'tool', args: {} });
    invocation.end({ error: { code: 'interrupted', message: '' }, paused: false });
    answered.end({ result: 1 });
    await tracing.close();
    expect((JSON.parse(await list()) as { name: string }[]).map(({ name }) => name)).toEqual([
      'invocation',
      'invoke_agent one',
    ]);
  });
});
