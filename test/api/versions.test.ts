import { expect, test } from 'vitest';
import { startApp, startOn, type TestApp, client } from '../support/app.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** Versions of applications: what was deployed, which one an invocation ran with, and what each used. */

const app = staged(() => startApp({ TOOLS: 'calculator', SYSTEM_PROMPT: 'Be brief.' }));
const sql = stagedSql(app);

const APP = '/apps/harness_agent';
type Version = { version: string; createTime: number };
const listVersions = async () => ((await app.get(`${APP}/versions`)).body as { items: Version[] }).items;
const say = async (to: Pick<TestApp, 'post' | 'get'>, session: string, more: object = {}) => {
  const run = { user_id: 'ann', session_id: session };
  await to.post('/harness/invoke', { prompt: 'Hello', harness_name: 'h', run_agent_request: run, ...more });
  const { body } = await to.get(`${APP}/users/ann/sessions/${session}/invocations`);
  return (body as { agentVersion: string }[])[0]?.agentVersion;
};

test('the deployed definition is one row, however many replicas deploy it; invocations name it', async () => {
  const [version, ...others] = await listVersions();
  expect(others).toEqual([]);
  const same = await startOn(app.databaseUrl, { TOOLS: 'calculator', SYSTEM_PROMPT: 'Be brief.' });
  const changed = await startOn(app.databaseUrl, {
    TOOLS: 'calculator',
    SYSTEM_PROMPT: 'Be kind.',
    MCP_SERVERS:
      '[{"name":"shop","url":"https://shop.example/sse?key=hidden","headers":{"x-key":"hidden"},"on_failure":"skip"}]',
  });
  const listed = await listVersions();
  const { rows: stored } = await sql.query<{ n: number; text: string }>(
    `select count(*)::int as n, string_agg(definition::text, '') as text from agent_versions`,
  );
  const overridden = await say(app, 's2', { harness: { system_prompt: 'Be loud.' } });
  const names = [
    await say(app, 's1'),
    overridden,
    await say(client(same.url), 's3'),
    await say(client(changed.url), 's4'),
  ];
  const diff = await app.get(`${APP}/versions/${version?.version}/diff?other=${listed[0]?.version}`);
  await same.close();
  await changed.close();
  expect([listed.length, listed[1], stored[0]?.n]).toEqual([2, version, 2]);
  expect(stored[0]?.text).not.toContain('hidden');
  const digest = version?.version;
  expect(names).toEqual([digest, `${digest}+overrides`, digest, listed[0]?.version]);
  expect(diff.body).toEqual({
    differences: [
      { path: '/agents/harness_agent/mcpServers/0', before: null, after: { name: 'shop' } },
      { path: '/agents/harness_agent/instruction', before: 'Be brief.', after: 'Be kind.' },
    ],
    differing: 2,
  });
});

test('its definition has tools with their schemas; the usage by version is that of all', async () => {
  const [, first] = await listVersions();
  const { body } = await app.get(`${APP}/versions/${first?.version}`);
  expect(body).toMatchObject({
    root: 'harness_agent',
    provider: 'offline',
    agents: {
      harness_agent: { instruction: 'Be brief.', tools: { calculator: { parameters: { type: 'object' } } } },
    },
  });
  const usage = async (by: string) =>
    ((await app.get(`${APP}/usage?by=${by}`)).body as { items: { version?: string; llmCalls: number }[] }).items;
  const rows = await usage('version,day');
  expect(rows.map(({ version }) => version)).toHaveLength(3);
  expect(rows.every((row) => 'p95Seconds' in row)).toBe(true);
  const total = (all: { llmCalls: number }[]) => all.reduce((sum, row) => sum + row.llmCalls, 0);
  expect(total(rows)).toBe(total(await usage('day')));
  const first2 = await app.get(`${APP}/usage?by=version&limit=2`);
  const { items, nextCursor } = first2.body as { items: object[]; nextCursor: string };
  const rest = await app.get(`${APP}/usage?by=version&limit=2&cursor=${nextCursor}`);
  expect([...items, ...(rest.body as { items: object[] }).items]).toEqual(await usage('version'));
});

test('an absent other version is a 404', async () => {
  const [one] = await listVersions();
  const { status, body } = await app.get(`${APP}/versions/${one?.version}/diff?other=nope`);
  expect([status, body]).toEqual([404, { detail: 'Version not found: nope' }]);
});
