import { randomUUID } from 'node:crypto';
import { mkdtempSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'pg';
import { describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp } from '../support/app.ts';
import { type AskedGate, newAskedGate } from '../support/asked-gate.ts';
import { startCollector } from '../support/collector.ts';
import { callPart } from '../support/scripted-model.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** Who may steer, how much, what a trace says of it, and what happens at the same moment. */

const sum = callPart('calculator', { expression: '1' });
const nap = callPart('sleep_for', { days: 2 });
interface Row {
  id: string;
  status: string;
  steeredInto?: string;
  error?: { code: string; message: string };
}

/** A service whose model waits for the test. */
function stage(environment: () => Record<string, string>) {
  let gate: AskedGate | undefined;
  const app = staged(async () => {
    gate = newAskedGate();
    const agents = hostAgent(gate.model, [], { tools: ['calculator', 'sleep_for'] });
    return startApp(environment(), { agents, sweepIntervalMs: 50 });
  });
  /** Begins a session of a user, whose requests have these headers. */
  const open = async (user: string, headers: Record<string, string> = {}) => {
    const session = `s-${randomUUID()}`;
    const path = `/apps/harness_agent/users/${user}/sessions`;
    await app.post(path, { sessionId: session }, headers);
    const content = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
    const before = gate?.asked.length ?? 0;
    const list = async () => (await app.get(`${path}/${session}/invocations`, headers)).body as Row[];
    const run = (text: string, more = {}) =>
      app.post(
        '/run',
        { appName: 'harness_agent', userId: user, sessionId: session, ...content(text) },
        { ...headers, ...more },
      );
    return {
      run,
      steer: (text: string, more = {}) => run(text, { 'x-double-texting': 'steer', ...more }),
      leave: async (text: string, more: Record<string, string> = {}) => {
        const all = { ...headers, 'x-double-texting': 'steer', ...more };
        return ((await app.post(`${path}/${session}/invocations`, content(text), all)).body as Row).id;
      },
      list,
      row: async (id: string | undefined) => (await list()).find((each) => each.id === id),
      until: async (status: string, count: number) => {
        await expect.poll(async () => (await list()).filter((row) => row.status === status)).toHaveLength(count);
      },
      said: async () =>
        ((await app.get(`${path}/${session}`, headers)).body as { events: Event[] }).events.flatMap(
          ({ content: said, author }) => (author === 'user' ? (said?.parts?.[0]?.text ?? []) : []),
        ),
      entered: (n: number) => gate?.entered(before + n),
      asked: () => gate?.asked.at(-1),
      answer: (...parts: Parameters<AskedGate['answer']>) => gate?.answer(...parts),
    };
  };
  return { app, open };
}

describe('a message of a key', () => {
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-keys-')), 'keys');
  const names = ['stays', 'removed', 'expired', 'otherUser', 'otherScope', 'otherApp'] as const;
  const scopes = ['invoke', 'read', 'write'] as const;
  const made = names.map((id) => createKey({ id, scopes }));
  const [stays, ...gone] = made;
  const sent = (key: { key: string } | undefined) => ({ authorization: `Bearer ${key?.key}` });
  // As a whole: a service that reads half of it would refuse the keys that are missing.
  const write = (entries: (object | string)[]) => {
    const lines = entries.map((entry) => (typeof entry === 'string' ? entry : JSON.stringify(entry)));
    writeFileSync(`${file}.new`, lines.join('\n'));
    renameSync(`${file}.new`, file);
  };
  const change = (place: number, more: object): object => ({
    ...(JSON.parse(gone[place]?.entry ?? '') as object),
    ...more,
  });
  write(made.map(({ entry }) => entry));
  const { open } = stage(() => ({ RUNTIME_API_KEYS_FILE: file }));

  test('that is not valid any more is not taken, as its own turn would be refused', async () => {
    const session = await open('u', sent(stays));
    const first = session.run('one');
    await session.entered(1);
    const ids: string[] = [];
    for (const key of gone) ids.push(await session.leave(`of ${key.key.split('.')[0]}`, sent(key)));
    const taken = await session.leave('of stays');
    write([
      stays?.entry ?? '',
      change(1, { expires: '2020-01-01T00:00:00Z' }),
      change(2, { users: ['v'] }),
      change(3, { scopes: ['read'] }),
      change(4, { apps: ['other'] }),
    ]);
    session.answer(sum);
    await session.entered(2);
    expect(session.asked()?.slice(3)).toEqual(['of stays']);
    // What waits does not wake what sleeps, either.
    session.answer(nap);
    await first;
    await session.until('failed', gone.length);
    for (const id of ids)
      expect((await session.row(id))?.error?.message).toContain('the key that requested it is not valid');
    const run = (await session.list()).find(({ status }) => status === 'paused');
    expect((await session.row(taken))?.steeredInto).toBe(run?.id);
    const woken = session.steer('awake');
    await session.entered(3);
    expect(session.asked()?.at(-1)).toBe('awake');
    session.answer({ text: 'done' });
    expect((await woken).status).toBe(200);
    expect((await session.row(run?.id))?.status).toBe('succeeded');
  });
});

describe.each([true, false])('the trace of a run, with content: %s', (withContent) => {
  const collector = staged(startCollector);
  const { open } = stage(() => ({
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: String(withContent),
    // What the page of the service shows has content in any case.
    DEV_UI: 'true',
  }));

  test('notes the messages that it took, at a step and where they woke it', async () => {
    const session = await open('traced');
    const first = session.run('one');
    await session.entered(1);
    const two = await session.leave('two');
    session.answer(sum);
    await session.entered(2);
    session.answer(nap);
    await first;
    await session.until('paused', 1);
    const three = await session.leave('three');
    await session.entered(3);
    session.answer({ text: 'done' });
    await session.until('succeeded', 3);
    const run = (await session.row(two))?.steeredInto ?? '';
    const isRun = (attributes: Record<string, unknown>) => attributes['agent_runtime.invocation_id'] === run;
    const roots = () => collector.spans().filter(({ name, attributes }) => name === 'invocation' && isRun(attributes));
    await expect.poll(() => roots().length).toBe(2);
    const notes = roots().flatMap(({ events }) => events.map(({ name, attributes }) => [name, attributes]));
    const noteOf = (id: string, text: string) => [
      'agent_runtime.message_taken',
      {
        'agent_runtime.event_id': id,
        ...(withContent && {
          'gen_ai.input.messages': JSON.stringify([{ role: 'user', parts: [{ type: 'text', content: text }] }]),
        }),
      },
    ];
    expect(notes).toHaveLength(2);
    expect(notes).toEqual(expect.arrayContaining([noteOf(two, 'two'), noteOf(three, 'three')]));
  });
});

describe('a message', () => {
  const { app, open } = stage(() => ({ MAX_INVOCATIONS_PER_USER: '2' }));
  const sql = stagedSql(app);
  const counted = async (user: string) =>
    (
      await sql.query<{ n: number }>(
        `select coalesce(sum(invocations), 0)::int as n from budget_uses where user_id = $1`,
        [user],
      )
    ).rows[0]?.n;
  const limit = (user: string, most: number) =>
    sql.query(
      `insert into budgets (app_name, user_id, applies_to, period, max_invocations) values ('harness_agent', $1, 'user', 'day', $2)`,
      [user, most],
    );

  test('that is taken counts as an invocation of a budget, once; one that no budget allows waits for its turn', async () => {
    await limit('budget', 2);
    const session = await open('budget');
    const first = session.run('one');
    await session.entered(1);
    const [two, three] = [await session.leave('two'), await session.leave('three')];
    session.answer(sum);
    await session.entered(2);
    expect(session.asked()?.slice(3)).toEqual(['two']);
    expect(await counted('budget')).toBe(2);
    session.answer(sum);
    await session.entered(3);
    expect(session.asked()).not.toContain('three');
    session.answer({ text: 'done' });
    await first;
    // A start in the background waits for the budget.
    await session.until('paused', 1);
    expect((await session.row(two))?.steeredInto).toBeDefined();
    expect((await session.row(three))?.status).toBe('paused');
    expect(await counted('budget')).toBe(2);
  });

  test('waits for the next step while another statement counts in the budgets, whose lock a step cannot wait for', async () => {
    await limit('locked', 9);
    const session = await open('locked');
    const first = session.run('one');
    await session.entered(1);
    await session.leave('two');
    const pool = new Pool({ connectionString: app.databaseUrl, max: 1 });
    await pool.query(`select pg_advisory_lock(budgets_lock('harness_agent', 'locked'))`);
    session.answer(sum);
    await session.entered(2);
    expect(session.asked()).not.toContain('two');
    await pool.query('select pg_advisory_unlock_all()');
    await pool.end();
    session.answer(sum);
    await session.entered(3);
    expect(session.asked()?.at(-1)).toBe('two');
    session.answer({ text: 'done' });
    await first;
    expect(await counted('locked')).toBe(2);
  });

  test('has a request that waits, of which a caller has as many as invocations; a further one is refused before it is stored', async () => {
    const session = await open('bounded');
    const first = session.run('one');
    await session.entered(1);
    const waiting = [session.steer('two')];
    await session.until('queued', 1);
    waiting.push(session.steer('three'));
    await session.until('queued', 2);
    const refused = await session.steer('four');
    const detail = expect.stringContaining('2 requests that steer at once: MAX_INVOCATIONS_PER_USER') as string;
    expect(refused).toMatchObject({ status: 429, body: { detail } });
    session.answer({ text: 'over' });
    await first;
    for (const n of [2, 3]) {
      await session.entered(n);
      session.answer({ text: `answer ${n}` });
    }
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([200, 200]);
    expect(await session.said()).not.toContain('four');
    expect(await session.list()).toHaveLength(3);
  });

  /** Holds what a trigger sees, within its statement, which has locked the session by then. */
  const holdAt = async (table: string, event: string, condition: string) => {
    const pool = new Pool({ connectionString: app.databaseUrl, max: 1 });
    const name = `hold_${randomUUID().replaceAll('-', '')}`;
    await pool.query(`
      create function ${name}() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock(hashtext('${name}')); return new; end $$;
      create trigger ${name} before ${event} on ${table} for each row when (${condition}) execute function ${name}();
      select pg_advisory_lock(hashtext('${name}'))`);
    const blocked = async () => {
      const { rows } = await sql.query<{ n: number }>(
        `select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      return rows[0]?.n;
    };
    return {
      isBlocked: async (n: number) => {
        await expect.poll(blocked).toBe(n);
      },
      release: async () => {
        await pool.query(`select pg_advisory_unlock(hashtext('${name}'))`);
        await sql.query(`drop trigger ${name} on ${table}`);
        await pool.end();
      },
    };
  };

  /** One of the two has locked the session and is held; the other one comes behind it. */
  test.each([
    ['is stored before the run ends: it begins its own turn', true, 'end'],
    ['comes behind the end of the run: it begins its own turn', false, 'end'],
    ['is stored before a step: that takes it', true, 'step'],
    ['comes behind a step: the next one takes it', false, 'step'],
  ] as const)('that comes at the same moment, and %s', async (_what, isFirst, step) => {
    const user = `${step}-${isFirst}`;
    const session = await open(user);
    const first = session.run('one');
    await session.entered(1);
    const held = isFirst
      ? await holdAt('invocations', 'insert', `new.user_id = '${user}' and new.status = 'queued'`)
      : step === 'end'
        ? await holdAt('invocations', 'update', `new.user_id = '${user}' and new.status = 'succeeded'`)
        : await holdAt('events', 'insert', `new.user_id = '${user}' and new.payload::text like '%functionResponse%'`);
    const act = () => session.answer(step === 'end' ? { text: 'over' } : sum);
    let second: ReturnType<typeof session.steer>;
    if (isFirst) {
      second = session.steer('two');
      await held.isBlocked(1);
      act();
    } else {
      act();
      await held.isBlocked(1);
      second = session.steer('two');
    }
    await held.isBlocked(2);
    await held.release();
    if (step === 'end') {
      await session.entered(2);
      expect(session.asked()).toEqual(['one', 'over', 'two']);
      session.answer({ text: 'its own' });
    } else {
      await session.entered(2);
      expect(session.asked()?.includes('two')).toBe(isFirst);
      if (!isFirst) {
        await session.until('queued', 1);
        session.answer(sum);
        await session.entered(3);
        expect(session.asked()?.at(-1)).toBe('two');
      }
      session.answer({ text: 'over' });
    }
    expect((await Promise.all([first, second])).map(({ status }) => status)).toEqual([200, 200]);
    expect(await session.said()).toEqual(['one', 'two']);
    const rows = await session.list();
    expect(rows.map(({ status }) => status)).toEqual(['succeeded', 'succeeded']);
    expect(rows.map(({ steeredInto }) => steeredInto)).toEqual([step === 'end' ? undefined : rows[1]?.id, undefined]);
  });
});
