import { Client } from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import type { HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { OperationOutcome, Tool, ToolContext } from '../../src/agent/definition/tool.ts';
import type { Part } from '../../src/core/content.ts';
import { UnknownOutcomeError } from '../../src/core/errors.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';

/**
 * The ledger of tool calls, in one process: it loses an invocation as if it had died, and takes it up as another would.
 */

const USER = '/apps/harness_agent/users/u';
const SESSION = `${USER}/sessions/s`;
const UNKNOWN = /^It is not known whether this call took effect/;
const call = (name: string, id = name): Part => ({ functionCall: { id, name, args: {} } });

const tool = (name: string, effect: Tool['effect'], run: Tool['run'], more: Partial<Tool> = {}): Tool => ({
  name,
  description: 'Counts.',
  ...(effect && { effect }),
  needsConfirmation: false,
  parameters: { type: 'object', properties: {} },
  run,
  ...more,
});

let app: TestApp;
let sql: Client;
let released = Promise.withResolvers<void>();
afterEach(async () => {
  released.resolve();
  released = Promise.withResolvers();
  await sql.end();
  await app.close();
});

async function start(agents: Map<string, HostedAgent>, settings = {}): Promise<void> {
  app = await startApp(settings, { agents, sweepIntervalMs: 50 });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  await app.post(`${USER}/sessions`, { sessionId: 's' });
}

const ask = (more = {}) =>
  app.post('/run', {
    appName: 'harness_agent',
    userId: 'u',
    sessionId: 's',
    newMessage: { role: 'user', parts: [{ text: 'Buy.' }] },
    ...more,
  });

/** Takes the session from the invocation that runs there, as where its process had died. */
const lose = () => sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);

const rows = async () =>
  (
    await sql.query(
      `select call_id, tool, effect, state, attempt, response, operation_id
       from tool_calls order by create_time, call_id`,
    )
  ).rows as Record<string, unknown>[];

const status = async () => (await sql.query('select status from invocations')).rows as unknown;
const whenEndedAs = async (wanted: string) => {
  await expect.poll(status).toEqual([{ status: wanted }]);
};

const partsOf = async () => {
  const { events } = (await app.get(SESSION)).body as { events: { content: { parts: Part[] } }[] };
  return events.map(({ content }) => content.parts);
};
const responsesOf = async () =>
  (await partsOf()).flat().flatMap(({ functionResponse }) => (functionResponse ? [functionResponse.response] : []));

/** A tool whose first run ends when its process has been lost; it tells when that has begun. */
function stuck(name: string, effect: Tool['effect'], more: Partial<Tool> = {}) {
  const begun = Promise.withResolvers<void>();
  const seen: ToolContext[] = [];
  const run: Tool['run'] = async (_, context) => {
    seen.push(context);
    begun.resolve();
    return seen.length > 1 ? { ran: seen.length } : released.promise;
  };
  return { tool: tool(name, effect, run, more), begun: begun.promise, seen };
}

describe('the ledger', () => {
  test('has a row for each call that acts, whose operation the tool knows; its response is in the event', async () => {
    const seen: string[] = [];
    const buy = tool('buy', undefined, async (_, { operationId }) => {
      seen.push(operationId);
      return { bought: 1 };
    });
    const look = tool('look', 'none', async () => 1);
    await start(hostScript([[call('buy', 'b')], [call('look', 'c')], [{ text: 'done' }]], [buy, look]));
    await ask();
    const [first, ...others] = await rows();
    const done = { state: 'done', attempt: 1, response: null };
    expect(first).toMatchObject({ call_id: 'b', tool: 'buy', effect: 'once', ...done, operation_id: seen[0] });
    expect(others).toEqual([]);
    const view = await sql.query('select tool, state, effect, attempt from inspect.tool_calls order by sequence');
    expect(view.rows[0]).toEqual({ tool: 'buy', state: 'done', effect: 'once', attempt: 1 });
    await app.send('DELETE', SESSION);
    expect(await rows()).toEqual([]);
  });

  test('keeps what a call answered beside others that still run, with its state: it is not run again', async () => {
    let charged = 0;
    const charge = tool('charge', 'once', async (_, { actions }) => {
      actions.stateDelta = { paid: true };
      return { charged: ++charged };
    });
    const slow = stuck('slow', 'idempotent');
    await start(hostScript([[call('charge'), call('slow')], [{ text: 'done' }]], [charge, slow.tool]));
    const lost = ask();
    await slow.begun;
    await expect.poll(async () => (await rows())[0]?.['state']).toBe('done');
    // What each further process sends first, that it begins, changes nothing of what is kept.
    const begun = await sql.query<{ session: string[]; calls: string }>(
      `select array[app_name, user_id, session_id, invocation_id] as session,
         jsonb_build_array(jsonb_build_object('id', call_id, 'operationId', operation_id,
           'tool', tool, 'effect', effect, 'state', 'started', 'attempt', 1))::text as calls
       from tool_calls where tool = 'charge'`,
    );
    const { session = [], calls } = begun.rows[0] ?? {};
    await sql.query('select record_calls($1, $2, $3, $4, $5)', [...session, calls]);
    await lose();
    await whenEndedAs('succeeded');
    released.resolve();
    expect((await lost).status).toBe(503);
    expect(await responsesOf()).toEqual([{ charged: 1 }, { ran: 2 }]);
    expect((await app.get(SESSION)).body).toMatchObject({ state: { paid: true } });
    expect(slow.seen[1]?.operationId).toBe(slow.seen[0]?.operationId);
    expect(await rows()).toMatchObject([
      { tool: 'charge', state: 'done', attempt: 1, response: null },
      { tool: 'slow', state: 'done', attempt: 2 },
    ]);
    const bytes = `select counted - there as left from (select sum(event_bytes) as counted from user_storage) u,
      (select sum(event_bytes + state_size(state, initial_state)) as there from sessions) s`;
    expect((await sql.query(bytes)).rows).toEqual([{ left: '0' }]);
  });

  test('says of a call that was cut off that it is unknown, and nothing of one without effect', async () => {
    const [charge, look] = [stuck('charge', 'once'), stuck('look', 'none')];
    await start(hostScript([[call('charge'), call('look')]], [charge.tool, look.tool]));
    const asked = ask();
    await Promise.all([charge.begun, look.begun]);
    const [{ id } = { id: '' }] = (await sql.query<{ id: string }>('select id from invocations')).rows;
    await app.post(`${SESSION}/invocations/${id}/cancel`, {});
    await asked;
    expect((await rows()).map(({ tool: name, state }) => [name, state])).toEqual([['charge', 'unknown']]);
  });

  test('says the same of a call whose answer did not come: its check or a person says what became of it', async () => {
    const cut = async () => Promise.reject(new UnknownOutcomeError('mcp_failed', 'The server took too long.'));
    const done = { check: async () => ({ done: true as const, response: 'charged' }) };
    const undone = { check: async () => ({ done: false as const }) };
    const tools = [
      tool('told', 'once', cut),
      tool('done', 'once', cut, done),
      tool('undone', 'once', cut, undone),
      tool('again', 'idempotent', cut),
      tool('asked', 'once', cut, { onUnknown: 'ask' }),
    ];
    await start(hostScript([tools.map(({ name }) => call(name))], tools));
    await ask();
    expect(await status()).toEqual([{ status: 'paused' }]);
    const not = 'It is not known whether this call took effect: The server took too long. It was not repeated.';
    const failed = { error: 'The server took too long.' };
    const asked = { error: `${not} A person is asked.` };
    expect(await responsesOf()).toEqual([{ error: not }, { result: 'charged' }, failed, failed, asked]);
    const states = (await rows()).map(({ tool: name, state }) => [name, state]);
    expect(Object.fromEntries(states as [string, string][])).toEqual({
      told: 'unknown',
      done: 'settled',
      undone: 'done',
      again: 'done',
      asked: 'unknown',
    });
  });
});

describe('a call that acts once, where its process died', () => {
  const unknown = expect.objectContaining({ error: expect.stringMatching(UNKNOWN) }) as unknown;
  const outcomes: [name: string, outcome: OperationOutcome | undefined | Error, response: unknown, runs: number][] = [
    ['took effect', { done: true, response: { charged: 'before' } }, { charged: 'before' }, 1],
    ['did not', { done: false }, { ran: 2 }, 2],
    ['is not known', undefined, unknown, 1],
    ['cannot be said', new Error('away'), unknown, 1],
  ];

  test.each(outcomes)('its check says that it %s', async (_name, outcome, response, runs) => {
    const asked: string[] = [];
    const check = async (operationId: string) => {
      asked.push(operationId);
      if (outcome instanceof Error) throw outcome;
      return outcome;
    };
    const charge = stuck('charge', 'once', { check });
    await start(hostScript([[call('charge')], [{ text: 'done' }]], [charge.tool]));
    void ask();
    await charge.begun;
    await lose();
    await whenEndedAs('succeeded');
    expect(asked).toEqual([charge.seen[0]?.operationId]);
    expect(charge.seen).toHaveLength(runs);
    expect(await responsesOf()).toEqual([response]);
    const state = response === unknown ? 'unknown' : runs === 2 ? 'done' : 'settled';
    expect(await rows()).toMatchObject([{ state, attempt: runs }]);
    const listed = (await app.get(`${USER}/tool-calls?state=unknown`)).body as { items: object[] };
    expect(listed.items).toMatchObject(state === 'unknown' ? [{ callId: 'charge', sessionId: 's', state }] : []);
  });

  const settlements: [outcome: string, body: object, response: unknown, runs: number][] = [
    ['done', { response: { charged: 7 } }, { charged: 7 }, 1],
    ['not_done', {}, { error: 'This call did not take effect: a person has looked.' }, 1],
    ['run_again', {}, { ran: 2 }, 2],
  ];

  test.each(settlements)('waits for a person, who says: %s', async (outcome, more, response, runs) => {
    const charge = stuck('charge', 'once', { onUnknown: 'ask' });
    await start(hostScript([[call('charge')], [{ text: 'done' }]], [charge.tool]));
    void ask();
    await charge.begun;
    await lose();
    await whenEndedAs('paused');
    const { items } = (await app.get(`${USER}/tool-calls`)).body as { items: { callId: string }[] };
    expect(items).toMatchObject([{ tool: 'charge', state: 'unknown', operationId: charge.seen[0]?.operationId }]);
    const settled = await app.post(`${SESSION}/tool-calls/${items[0]?.callId}/settle`, { outcome, ...more });
    expect(settled).toMatchObject({ status: 200, body: { state: 'settled' } });
    await whenEndedAs('succeeded');
    expect(charge.seen).toHaveLength(runs);
    const [asked, last] = (await responsesOf()).filter((each) => !('confirmed' in (each ?? {})));
    expect([asked, last]).toEqual([unknown, response]);
    expect((await partsOf()).at(-1)).toEqual([{ text: 'done' }]);
    expect(((await app.get(`${USER}/tool-calls`)).body as { items: [] }).items).toEqual([]);
    const again = await app.post(`${SESSION}/tool-calls/charge/settle`, { outcome: 'not_done' });
    expect(again.status).toBe(409);
  });

  test.each([
    ['U+0000', 'a\u0000b'],
    ['half a surrogate', 'a\ud800'],
    ['the mark of the store', 'a\ue000'],
  ])('waits for a person, also where its id has %s: by its operation', async (_name, id) => {
    const charge = stuck('charge', 'once', { onUnknown: 'ask' });
    await start(hostScript([[call('charge', id)], [{ text: 'done' }]], [charge.tool]));
    void ask();
    await charge.begun;
    await lose();
    await whenEndedAs('paused');
    const { items } = (await app.get(`${USER}/tool-calls`)).body as {
      items: { callId: string; operationId: string }[];
    };
    expect(items.map(({ callId }) => callId)).toEqual([id]);
    const settled = await app.post(`${SESSION}/tool-calls/${items[0]?.operationId}/settle`, { outcome: 'not_done' });
    expect(settled).toMatchObject({ status: 200, body: { callId: id, state: 'settled' } });
    await whenEndedAs('succeeded');
    expect((await partsOf()).at(-1)).toEqual([{ text: 'done' }]);
  });

  test('is settled for the record where the model was told; nothing is left to run', async () => {
    const charge = stuck('charge', 'once');
    await start(hostScript([[call('charge')], [{ text: 'done' }]], [charge.tool]));
    void ask();
    await charge.begun;
    await lose();
    await whenEndedAs('succeeded');
    const settle = (body: object, id = 'charge') => app.post(`${SESSION}/tool-calls/${id}/settle`, body);
    expect((await settle({ outcome: 'run_again' })).status).toBe(409);
    expect((await settle({ outcome: 'done' }, 'other')).status).toBe(404);
    expect((await settle({ outcome: 'done' })).body).toMatchObject({ state: 'settled' });
  });

  test('and that a person confirmed: where it had not begun, it runs', async () => {
    const ran: string[] = [];
    const send = tool('send', 'once', async () => ({ sent: ran.push('send') }), { needsConfirmation: true });
    const agents = hostScript([[call('send')], [{ text: 'done' }]], [send]);
    const [hosted] = agents.values();
    const prepare = hosted?.prepare.bind(hosted);
    let [times, held] = [0, Promise.withResolvers<void>()];
    Object.assign(hosted ?? {}, {
      prepare: async (...given: Parameters<HostedAgent['prepare']>) => {
        times += 1;
        if (times === 2) {
          held.resolve();
          await released.promise;
        }
        return prepare?.(...given);
      },
    });
    await start(agents);
    await ask();
    expect(await rows()).toEqual([]);
    const question = (await partsOf()).flat().find(({ functionCall }) => functionCall?.name?.startsWith('adk_'));
    const { id, name } = question?.functionCall ?? {};
    const newMessage = { role: 'user', parts: [{ functionResponse: { id, name, response: { confirmed: true } } }] };
    const [{ id: invocationId } = { id: '' }] = (await sql.query<{ id: string }>('select id from invocations')).rows;
    void ask({ newMessage, invocationId });
    await held.promise;
    await lose();
    await whenEndedAs('succeeded');
    expect(ran).toEqual(['send']);
    expect(await rows()).toMatchObject([{ tool: 'send', state: 'done', attempt: 1 }]);
  });
});
