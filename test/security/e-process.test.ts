import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { client } from '../support/app.ts';
import { testDatabase } from '../support/database.ts';
import { startService } from '../support/service-process.ts';

/** What an author's tool does wrong ends neither other users' work nor the process in silence. */

const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-tools-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const database = testDatabase();
const from = new URL('../../src/agent/definition/agent-module.ts', import.meta.url).href;
const AGENT = `import { defineAgent, defineTool } from '${from}';
  const parameters = { type: 'object', properties: {} };
  const waits = defineTool({ name: 'waits', description: 'Waits.', parameters,
    run: () => new Promise((resolve) => { globalThis.release = () => resolve({ waited: true }); }) });
  const breaks = defineTool({ name: 'breaks', description: 'Breaks.', parameters, run: async () => {
    setTimeout(() => { throw new RangeError('thrown in a timer'); }, 1);
    // Behind the exception, with the process still there.
    setTimeout(() => globalThis.release(), 1_000);
    return {};
  } });
  export const agent = defineAgent({ tools: [waits, breaks] });`;

test('A12: an exception in a timer of a tool is logged, and the process drains and ends with 1', async () => {
  mkdirSync(join(folder, 'fragile'));
  writeFileSync(join(folder, 'fragile', 'agent.ts'), AGENT);
  const { end, until, ended } = startService({
    DATABASE_URL: database.url,
    PORT: '0',
    AGENTS_DIR: folder,
    DRAIN_DELAY_MS: '5000',
    SHUTDOWN_GRACE_MS: '20000',
    LOG_LEVEL: 'error',
  });
  await until('curl');
  const app = client(/listens on (\S+)/.exec(ended.out)?.[1] ?? '');
  const run = async (userId: string, text: string) => {
    await app.post(`/apps/fragile/users/${userId}/sessions`, { sessionId: 's' });
    const newMessage = { role: 'user', parts: [{ text }] };
    return app.post('/run', { appName: 'fragile', userId, sessionId: 's', newMessage });
  };
  const waiting = run('alice', 'use waits {}');
  const started = async () => (await app.get('/apps/fragile/users/alice/sessions/s')).text;
  await expect.poll(started).toContain('functionCall');
  const broken = run('mallory', 'use breaks {}');
  // Not ready any more, and serving what it has.
  await expect.poll(async () => (await app.get('/ready')).status).toBe(503);
  const [{ status, text }] = await Promise.all([waiting, broken]);
  expect([status, text]).toEqual([200, expect.stringMatching(/"waited": ?true/)]);
  const { code, error } = await end;
  expect(code).toBe(1);
  const lines = error.split('\n').filter((line) => line.includes('nothing caught an exception'));
  expect(lines).toHaveLength(1);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    level: 60,
    tool: 'breaks',
    sessionId: 's',
    invocationId: expect.any(String),
    err: { name: 'RangeError', reason: 'thrown in a timer', stack: expect.stringContaining('fragile/agent.ts') },
  });
});
