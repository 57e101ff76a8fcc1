import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp } from '../support/app.ts';
import { scriptedModel } from '../support/scripted-model.ts';
import { staged } from '../support/staged.ts';

/** What the lists say of an invocation: failed tool calls, time of work, cost, the agent, in one or all applications. */

const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-facts-'));
const SCOPES = ['invoke', 'read', 'write', 'admin'] as const;
const keys = {
  service: createKey({ id: 'service', scopes: SCOPES }),
  reader: createKey({ id: 'reader', scopes: ['read'] }),
  ofSecond: createKey({ id: 'of-second', scopes: SCOPES, apps: ['second'] }),
  readerOfSecond: createKey({ id: 'reader-of-second', scopes: ['read'], apps: ['second'] }),
  ofU1: createKey({ id: 'of-u1', scopes: ['read'], users: ['u1'] }),
  ofU2InSecond: createKey({ id: 'of-u2', scopes: ['read'], users: ['u2'], apps: ['second'] }),
  ofMany: createKey({ id: 'of-many', scopes: ['read'], users: Array.from({ length: 11 }, (_, n) => `u${n}`) }),
};
type Name = keyof typeof keys;
const as = (name: Name) => ({ authorization: `Bearer ${keys[name].key}` });

const tool = (name: string, run: Tool['run'], more: Partial<Tool> = {}): Tool => ({
  name,
  description: name,
  parameters: { type: 'object', properties: {} },
  needsConfirmation: false,
  run,
  ...more,
});
const tools = [
  tool('broken', async () => {
    throw new Error('The warehouse is closed.');
  }),
  tool('sound', async () => ({ error: null, parcels: 2 })),
  tool('asked', async () => ({ done: true }), { needsConfirmation: true }),
];
/** Calls the tools that the prompt names, then answers. */
const model = () =>
  scriptedModel([
    ({ contents }) => {
      const last = JSON.stringify(contents.at(-1));
      const called = tools.filter(({ name }) => last.includes(`use ${name}`));
      return called.length > 0
        ? called.map(({ name }) => ({ functionCall: { id: `${name}-${Math.random()}`, name, args: {} } }))
        : [{ text: 'Done.' }];
    },
  ]);
writeFileSync(
  join(folder, 'keys'),
  Object.values(keys)
    .map(({ entry }) => entry)
    .join('\n'),
);
const agents = new Map([...hostAgent(model(), tools), ...hostAgent(model(), tools, { name: 'second' })]);
const app = staged(() => startApp({ DEV_UI: 'false', RUNTIME_API_KEYS_FILE: join(folder, 'keys') }, { agents }));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Listed {
  id: string;
  appName: string;
  userId: string;
  sessionId: string;
  status: string;
  toolCalls: number;
  failedToolCalls?: number;
  workSeconds?: number;
  createTime: number;
  endTime?: number;
  cost?: number;
  agent?: string;
}
interface Page {
  items: Listed[];
  nextCursor?: string;
}
async function read(path: string, name: Name = 'service'): Promise<Page> {
  const { status, body, text } = await app.get(path, as(name));
  expect([status, status === 200 ? '' : text]).toEqual([200, '']);
  return body as Page;
}
const idsOf = ({ items }: Page) => items.map(({ appName, userId }) => `${appName} ${userId}`);

async function say(appName: string, userId: string, sessionId: string, text: string): Promise<Listed> {
  const path = `/apps/${appName}/users/${userId}/sessions`;
  await app.post(path, { sessionId }, as('service'));
  const newMessage = { role: 'user', parts: [{ text }] };
  const sent = await app.post('/run', { appName, userId, sessionId, newMessage }, as('service'));
  expect(sent.status).toBe(200);
  return ((await app.get(`${path}/${sessionId}/invocations`, as('service'))).body as Listed[])[0] as Listed;
}

test('an invocation that succeeded says how many of its tool calls failed, and is found by that', async () => {
  const broken = await say('harness_agent', 'u1', 'broken', 'Please use broken and use sound.');
  expect(broken).toMatchObject({ status: 'succeeded', toolCalls: 2, failedToolCalls: 1 });
  const sound = await say('harness_agent', 'u1', 'sound', 'Please use sound.');
  expect(sound).toMatchObject({ status: 'succeeded', toolCalls: 1 });
  expect(sound).not.toHaveProperty('failedToolCalls');
  const sessionsOf = async (query: string) =>
    (await read(`/apps/harness_agent/invocations?${query}`)).items.map(({ sessionId }) => sessionId);
  for (const more of ['', '&userId=u1', '&userId=u1&sessionId=broken', '&status=succeeded', '&limit=1'])
    expect(await sessionsOf(`failedToolCalls=true${more}`)).toEqual(['broken']);
  expect(await sessionsOf('failedToolCalls=true&userId=u2')).toEqual([]);
  expect(await sessionsOf('failedToolCalls=false')).toEqual(['sound', 'broken']);
});

test('a call that waits for a person has not failed; its pause has an agent, and is no time of work', async () => {
  const paused = await say('second', 'u2', 'asked', 'Please use asked.');
  expect(paused).toMatchObject({ status: 'paused' });
  expect(paused).not.toHaveProperty('failedToolCalls');
  const [listed] = (await read('/apps/second/invocations')).items;
  expect(listed).toMatchObject({ status: 'paused', agent: 'second' });
  const { items } = (await app.get('/tasks?appName=second', as('service'))).body as { items: { id: string }[] };
  await app.send('PATCH', `/tasks/${items[0]?.id}`, { action: 'answer' }, as('service'));
  const find = async () => (await read('/apps/second/invocations')).items[0] as Listed;
  await expect.poll(async () => (await find()).status).toBe('succeeded');
  const { workSeconds = NaN, createTime, endTime = NaN } = await find();
  expect(workSeconds).toBeGreaterThanOrEqual(paused.workSeconds ?? NaN);
  expect(workSeconds).toBeLessThanOrEqual(endTime - createTime);
  // The work of both runs, and not the time between them.
  expect(endTime - createTime - workSeconds).toBeGreaterThan(0);
});

test('a row has its cost by the prices of now, and none where a model has no price', async () => {
  const first = await say('harness_agent', 'u3', 'priced', 'Hello.');
  expect(first).not.toHaveProperty('cost');
  const { promptTokens, outputTokens } = first as Listed & { promptTokens: number; outputTokens: number };
  expect(promptTokens + outputTokens).toBeGreaterThan(0);
  const price = (each: string, value: number) =>
    app.send('PUT', '/model-prices', { model: each, promptPrice: value, outputPrice: value }, as('service'));
  expect([200, 204]).toContain((await price('*', 2_000_000)).status);
  const expected = 2 * (promptTokens + outputTokens);
  const [row] = (await read('/apps/harness_agent/invocations?userId=u3')).items;
  expect(row?.cost).toBe(expected);
  const one = (await app.get(`/apps/harness_agent/users/u3/sessions/priced/invocations/${first.id}`, as('service')))
    .body as Listed;
  expect(one.cost).toBe(expected);
});

test('all applications in one list: for the scope `admin`; a key sees those that it is bound to, of its users', async () => {
  const all = await read('/invocations');
  expect(new Set(all.items.map(({ appName }) => appName))).toEqual(new Set(['harness_agent', 'second']));
  const times = all.items.map(({ createTime }) => createTime);
  expect(times).toEqual(times.toSorted((one, other) => other - one));
  const seen: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined; ) {
    const page: Page = await read(`/invocations?limit=1${cursor && `&cursor=${cursor}`}`);
    seen.push(...page.items.map(({ id }) => id));
    cursor = page.nextCursor;
  }
  expect(seen).toEqual(all.items.map(({ id }) => id));
  expect(idsOf(await read('/invocations?failedToolCalls=true'))).toEqual(['harness_agent u1']);
  expect(idsOf(await read('/invocations', 'ofSecond'))).toEqual(['second u2']);
  expect(new Set(idsOf(await read('/invocations', 'ofU1')))).toEqual(new Set(['harness_agent u1']));
  expect(idsOf(await read('/invocations', 'ofU2InSecond'))).toEqual(['second u2']);
  const refused = async (query: string, name: Name) => (await app.get(`/invocations?${query}`, as(name))).status;
  expect(await refused('', 'reader')).toBe(403);
  expect(await refused('', 'readerOfSecond')).toBe(403);
  expect(await refused('userId=u2', 'ofU1')).toBe(404);
  // A statement for each user in each application.
  expect(await refused('', 'ofMany')).toBe(400);
  expect(await refused('userId=u2', 'ofMany')).toBe(200);
});
