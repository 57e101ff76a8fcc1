import { Client } from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import { AgentError } from '../../src/core/errors.ts';
import { openEmbedders } from '../../src/features/memory/embed-memories.ts';
import { MEMORY_JOB } from '../../src/invocations/memory.ts';
import { openPool } from '../support/store.ts';
import { createTestDatabase } from '../support/database.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startOn } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { makesDue } from '../support/jobs.ts';
import { installVectors } from '../support/vectors.ts';

/** Two directions: of animals of the sea, and of what falls from the sky. */
const toVector = (text: string) => [
  /whale|ocean|fish/i.test(text) ? 1 : 0,
  /rain|umbrella|snow/i.test(text) ? 1 : 0,
  0.01,
];
let fails: Error | undefined;
const asked: string[][] = [];
const model: Model = {
  ...scriptedModel([
    ({ contents }) =>
      contents.at(-1)?.parts?.[0]?.functionResponse
        ? [{ text: JSON.stringify(contents.at(-1)?.parts?.[0]?.functionResponse?.response) }]
        : [callPart('load_memory', { query: 'umbrella' })],
  ]),
  embed: async (texts, { modelName, dimensions }) => {
    asked.push(texts);
    expect([modelName, dimensions]).toEqual(['vectors', 3]);
    if (fails) throw fails;
    if (texts.some((text) => text.includes('forbidden'))) throw new AgentError('model_rejected', 'no');
    return { vectors: texts.map(toVector), tokens: texts.length };
  },
};
const embedder = { model, modelName: 'vectors', dimensions: 3 };
const hosted = (more: object = { embedder }) =>
  new Map(
    [...hostAgent(model, [], { tools: ['load_memory'] })].map(
      ([name, agent]) => [name, { ...agent, ...more }] as const,
    ),
  );

let database: Awaited<ReturnType<typeof createTestDatabase>>;
let runtime: Awaited<ReturnType<typeof startOn>>;
let app: ReturnType<typeof client>;
let sql: Client;
beforeAll(async () => {
  database = await createTestDatabase();
  await installVectors(database.url);
  runtime = await startOn(database.url, {}, { agents: hosted() });
  app = client(runtime.url);
  sql = new Client(database.url);
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await runtime.close();
  await database.drop();
});

const of = (user: string) => `/apps/harness_agent/users/${user}`;
const remember = async (user: string, texts: string[], sessionId = 's', on = app) => {
  const events = texts.map((text) => ({ author: 'user', content: { role: 'user', parts: [{ text }] } }));
  await on.post(`${of(user)}/sessions`, { sessionId, events });
  expect((await on.send('PATCH', `${of(user)}/memory`, { sessionId })).status).toBe(200);
};
const search = async (user: string, words: string, on = app) => {
  const { status, body } = await on.get(`${of(user)}/memory?query=${encodeURIComponent(words)}`);
  expect(status).toBe(200);
  return (body as { memories: { content: { parts: { text: string }[] } }[] }).memories.map(
    ({ content }) => content.parts[0]?.text ?? '',
  );
};
const jobs = async (user: string) =>
  (await sql.query<{ attempt: number }>('select attempt from jobs where user_id = $1', [user])).rows;
/** Waits until what is due for a user is done; what was put back is due again at once. */
const embedded = async (user: string) => {
  while ((await jobs(user)).length > 0) {
    await sql.query(makesDue(MEMORY_JOB, user));
    await remember('waker', [], crypto.randomUUID());
  }
};

test('what was said is found by its meaning, by the operation and by the tool; its tokens are counted', async () => {
  await remember('ada', ['the whale sings', 'take your coat, it will rain']);
  await embedded('ada');
  expect(await search('ada', 'umbrella')).toEqual(['take your coat, it will rain', 'the whale sings']);
  expect(await search('ada', 'sings')).toEqual(['the whale sings', 'take your coat, it will rain']);
  expect(await search('bob', 'umbrella')).toEqual([]);
  const { body } = await app.post('/harness/invoke', {
    prompt: 'Do I need something?',
    harness_name: 'harness_agent',
    run_agent_request: { user_id: 'ada', session_id: 'ask' },
  });
  expect((body as { output: string }).output).toMatch(/^\{"memories":\[\{[^}]*"text":"take your coat/);
  const { rows } = await sql.query<{ tokens: string }>(
    `select prompt_tokens as tokens from inspect.budget_uses where user_id = 'ada'`,
  );
  // Two memories, three searches, and two calls of the model.
  expect(rows).toEqual([{ tokens: String(2 + 3 + 20) }]);
});

test('a model that fails leaves words, and the vectors come later', async () => {
  fails = new AgentError('model_unavailable', 'away');
  onTestFinished(() => (fails = undefined));
  await remember('carl', ['the whale sings']);
  expect(await search('carl', 'whale')).toEqual(['the whale sings']);
  expect(await search('carl', 'ocean')).toEqual([]);
  while ((await jobs('carl'))[0]?.attempt !== 1) await remember('waker', [], crypto.randomUUID());
  fails = undefined;
  await embedded('carl');
  expect(await search('carl', 'ocean')).toEqual(['the whale sings']);
});

test('what is imported is found by its meaning once its vectors are made again', async () => {
  await remember('kim', ['the whale sings']);
  await embedded('kim');
  const lines = (await app.get(`${of('kim')}/export`)).text;
  const imported = await app.send('POST', `${of('lee')}/import`, lines, {
    'content-type': 'application/x-ndjson',
    'x-requested-with': 'test',
  });
  expect(imported.status).toBe(200);
  await embedded('lee');
  expect(await search('lee', 'ocean')).toEqual(['the whale sings']);
});

test('a text that the model refuses holds up no other one', async () => {
  await remember('dora', ['the whale sings', 'forbidden words', 'snow']);
  await embedded('dora');
  expect((await search('dora', 'ocean')).toSorted()).toEqual(['snow', 'the whale sings']);
  expect(await search('dora', 'forbidden')).toContain('forbidden words');
});

test('a batch has 16 memories; the tenth attempt in vain ends the job, and the next addition begins anew', async () => {
  asked.length = 0;
  await remember(
    'eve',
    Array.from({ length: 20 }, (_, n) => `fish ${n}`),
  );
  await embedded('eve');
  expect(asked.map((texts) => texts.length).toSorted((one, two) => one - two)).toEqual([4, 16]);
  fails = new AgentError('model_unauthorized', 'no key');
  onTestFinished(() => (fails = undefined));
  asked.length = 0;
  await remember('eve', ['snow'], 'more');
  // Put back after the first.
  const isBack = `update jobs set attempt = 9
    where user_id = 'eve' and attempt = 1 and lease_token is null returning user_id`;
  while ((await sql.query(isBack)).rows.length === 0) await remember('waker', [], crypto.randomUUID());
  await sql.query(makesDue(MEMORY_JOB, 'eve'));
  while ((await jobs('eve')).length > 0) await remember('waker', [], crypto.randomUUID());
  expect(asked).toHaveLength(2);
  fails = undefined;
  await app.send('PATCH', `${of('eve')}/memory`, { sessionId: 'more' });
  await embedded('eve');
  expect((await search('eve', 'umbrella'))[0]).toBe('snow');
});

test('a user without budget has words, and the vectors when it opens again', async () => {
  const budget = { appliesTo: 'user', forUser: 'finn', period: 'month', maxTokens: 1 };
  expect((await app.send('PUT', '/apps/harness_agent/budgets', budget)).text).toBe('null');
  asked.length = 0;
  await remember('finn', ['the whale sings']);
  const due = async () => {
    const { rows } = await sql.query<{ hours: number }>(`
      select extract(epoch from due_time at time zone 'utc'
        - (date_trunc('month', now() at time zone 'utc') + interval '1 month')) / 3600 as hours
      from jobs where user_id = 'finn' and attempt = 1`);
    return Number(rows[0]?.hours);
  };
  const isSoon = `select from jobs where user_id = 'finn' and due_time < now() + interval '3 m'`;
  while ((await sql.query(isSoon)).rows.length > 0) await remember('waker', [], crypto.randomUUID());
  expect(await due()).toBeCloseTo(0, 1);
  expect(await search('finn', 'whale')).toEqual(['the whale sings']);
  expect(asked).toEqual([]);
});

test('a process that stops ends its call, and leaves the job to others at once', async () => {
  const own = await createTestDatabase();
  await installVectors(own.url);
  const called = Promise.withResolvers<void>();
  const hangs: Model['embed'] = (_, { signal }) => {
    called.resolve();
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  };
  const agents = hosted({ embedder: { ...embedder, model: { ...model, embed: hangs } } });
  const stopping = await startOn(own.url, {}, { agents });
  await remember('gil', ['the whale sings'], 's', client(stopping.url));
  await called.promise;
  await stopping.close();
  const reader = new Client(own.url);
  await reader.connect();
  const { rows } = await reader.query('select due_time <= clock_timestamp() and lease_token is null as due from jobs');
  await reader.end();
  await own.drop();
  expect(rows).toEqual([{ due: true }]);
});

test('without the extension or a model that makes vectors words are searched, and the start says so', async () => {
  const empty = await createTestDatabase();
  const pool = openPool(empty.url, 2);
  onTestFinished(async () => {
    await pool.close();
    await empty.drop();
  });
  const warned: string[] = [];
  const log = { warn: (_: object, text: string) => warned.push(text) } as never;
  const open = async (agents: ReturnType<typeof hosted>) => {
    await openEmbedders(pool, agents, log);
    return [...agents.values()].map((agent) => agent.embedder !== undefined);
  };
  expect(await open(hosted())).toEqual([false]);
  await installVectors(empty.url);
  const mute = { ...model };
  delete mute.embed;
  expect(await open(hosted({ embedder: { ...embedder, model: mute } }))).toEqual([false]);
  expect(await open(hosted())).toEqual([true]);
  expect(warned).toEqual([
    'memory is searched by words alone: the database has no extension `vector`',
    'memory is searched by words alone: scripted makes no vectors',
  ]);
});
