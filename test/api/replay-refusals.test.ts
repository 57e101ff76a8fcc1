import { createSlots } from '../../src/platform/http/limits/caller-limits.ts';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createKey, type NewKey } from '../../src/platform/http/access/key-ring.ts';
import { gatedAgents } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';

/** What a replay refuses: invocations of others, scopes that a key lacks, too many at once, and one that takes long. */

const dir = mkdtempSync(join(tmpdir(), 'agent-runtime-replays-'));
const file = join(dir, 'keys');
const made = (limits: Partial<NewKey>) => createKey({ scopes: ['invoke', 'develop', 'override'], ...limits });
const keys = {
  all: made({ id: 'all' }),
  ofBob: made({ id: 'of-bob', users: ['bob'] }),
  reader: made({ id: 'reader', scopes: ['read'] }),
  developer: made({ id: 'developer', scopes: ['develop'] }),
};
const bearer = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });
const shown = ({ status, body }: Answer) => [status, body];

const gate = gatedAgents();
let app: TestApp;
let id = '';
const SESSION = '/apps/harness_agent/users/alice/sessions/s';
const LIVE = { modelExecutionMode: 'live' };
const replay = (key: { key: string }, body: object = {}, by: Pick<TestApp, 'post'> = app) =>
  by.post(`${SESSION}/invocations/${id}/replay`, body, bearer(key));

const oneReplay = () => createSlots('MAX_REPLAYS_PER_USER', 1, 'replays running');

beforeAll(async () => {
  writeFileSync(
    file,
    `${Object.values(keys)
      .map(({ entry }) => entry)
      .join('\n')}\n`,
  );
  const settings = { RUNTIME_API_KEYS_FILE: file, LOG_LEVEL: 'silent' };
  app = await startApp(settings, { agents: gate.agents, replays: oneReplay() });
  const message = { prompt: 'hello', run_agent_request: { user_id: 'alice', session_id: 's' }, harness_name: 'h' };
  const answered = app.post('/harness/invoke', message, bearer(keys.all));
  await gate.entered(1);
  gate.open([{ text: 'hello' }]);
  await answered;
  const listed = await app.get(`${SESSION}/invocations`, bearer(keys.reader));
  id = (listed.body as { id: string }[])[0]?.id ?? '';
});
afterAll(async () => {
  await app.close();
  rmSync(dir, { recursive: true });
});

test('a key that is bound to another user does not learn that the invocation is there', async () => {
  const foreign = await replay(keys.ofBob);
  expect(shown(foreign)).toEqual([404, { detail: `Invocation not found: ${id}` }]);
  const absent = await app.post(`${SESSION}/invocations/e-none/replay`, {}, bearer(keys.ofBob));
  expect(shown(absent)).toEqual([404, { detail: 'Invocation not found: e-none' }]);
  expect((await replay(keys.all)).body).toMatchObject({ status: 'same' });
});

test('a replay needs the scope `develop`, a live part `invoke` too, a changed agent `override`', async () => {
  const lacks = (scope: string, because: string) => [
    403,
    { detail: `The credential does not have the scope \`${scope}\`: ${because}` },
  ];
  expect(shown(await replay(keys.reader))).toEqual(lacks('develop', 'this operation needs it.'));
  expect((await replay(keys.developer)).body).toMatchObject({ status: 'same' });
  expect(shown(await replay(keys.developer, LIVE))).toEqual(lacks('invoke', 'a part of the replay is live.'));
  expect(shown(await replay(keys.developer, { harness: { system_prompt: 'Be short.' } }))).toEqual(
    lacks('override', '`harness` changes the deployed agent.'),
  );
});

test('one caller has so many replays at once, and the next when one has ended', async () => {
  const first = replay(keys.all, LIVE);
  await gate.entered(2);
  const refused = await replay(keys.all);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, expect.stringMatching(/^\d+$/)]);
  const detail = 'You may have 1 replays running at once: MAX_REPLAYS_PER_USER. Try again when one has ended.';
  expect(refused.body).toEqual({ detail, limit: 'MAX_REPLAYS_PER_USER' });
  expect((await replay(keys.developer)).status).toBe(200);
  gate.open([{ text: 'hello' }]);
  expect((await first).body).toMatchObject({ status: 'same', liveModelCalls: 1 });
  expect((await replay(keys.all)).status).toBe(200);
});

test('a replay whose model does not answer ends with the time limit, and leaves its place', async () => {
  const settings = { RUNTIME_API_KEYS_FILE: file, INVOCATION_TIMEOUT_MS: '100' };
  const slow = gatedAgents();
  const runtime = await startOn(app.databaseUrl, settings, { agents: slow.agents, replays: oneReplay() });
  const late = await replay(keys.all, LIVE, client(runtime.url));
  expect(shown(late)).toEqual([503, { detail: 'The replay was ended early. It may take 0.1 s.' }]);
  const again = await replay(keys.all, LIVE, client(runtime.url));
  expect(again.status).toBe(503);
  await runtime.close();
});
