import { beforeAll, expect, test } from 'vitest';
import { startApp } from '../support/app.ts';
import { tablesWith } from './support/tables-with.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** After a session is deleted no word of it is anywhere in the database, whatever feature quoted it. */

const app = staged(() => startApp({ CRONJOBS: 'true' }));
const client = stagedSql(app);
beforeAll(async () => {
  await client.query(`insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
    values ('harness_agent', 'u1', 'hook', 'https://hook.example/', 'hook.example', true, 'a secret')`);
});

const USER = '/apps/harness_agent/users/u1';
const DEV = '/dev/apps/harness_agent';
const content = (text: string) => ({ role: 'user', parts: [{ text }] });
const withKey = (key: string) => ({ 'idempotency-key': key });

/** Sends a request that must succeed, with a key of its own. */
async function ask(method: string, path: string, body?: object, key?: string): Promise<unknown> {
  const answer = await app.send(method, path, body, key === undefined ? {} : withKey(key));
  expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
  return answer.body;
}

/** Says a word in a session in every way there is, and has every feature quote it. */
async function plant(sessionId: string, word: string, { isEvaluated }: { isEvaluated: boolean }): Promise<void> {
  const session = `${USER}/sessions/${sessionId}`;
  await ask('POST', `${USER}/sessions`, { sessionId, state: { said: word } }, `create ${sessionId}`);
  await ask('PATCH', session, { stateDelta: { changed: word } }, `patch ${sessionId}`);
  await ask('POST', `${session}/events`, { author: 'user', content: content(word) }, `append ${sessionId}`);
  const run = { appName: 'harness_agent', userId: 'u1', sessionId, newMessage: content(`say ${word}`) };
  await ask('POST', '/run', run, `run ${sessionId}`);
  await ask('PATCH', `${USER}/memory`, { sessionId }, `memory ${sessionId}`);
  const set = `set_${sessionId}`;
  await ask(
    'POST',
    `${DEV}/eval-sets/${set}/add-session`,
    { evalId: 'c', userId: 'u1', sessionId },
    `eval ${sessionId}`,
  );
  if (isEvaluated)
    await ask('POST', `${DEV}/eval-sets/${set}/run`, {
      evalMetrics: [{ metricName: 'response_match_score', threshold: 1 }],
    });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  const job = { ownerId: 'u1', name: 'n', prompt: 'hello', schedule, sessionPolicy: 'fixed', sessionId };
  const { jobId } = (await ask('POST', '/harness/cronjobs', job)) as { jobId: string };
  await ask('POST', `/harness/cronjobs/${jobId}/run`);
  await expect
    .poll(async () => (await client.query('select from cronjob_runs where status = $1', ['success'])).rowCount)
    .toBeGreaterThan(0);
  await client.query('update invocations set response_body = $2 where session_id = $1 and cronjob_id is not null', [
    sessionId,
    word,
  ]);
  const payload = JSON.stringify({ type: 'invocation.ended', data: { sessionId, output: word } });
  await client.query(
    `insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, end_time)
     values ('harness_agent', 'u1', $1, 'hook', 'hook.example', $2, 'delivered', now(), now())`,
    [sessionId, payload],
  );
  await ask('GET', `${DEV}/debug/trace/session/${sessionId}`);
}

const COPIES = ['eval_case_versions', 'memories'];

test('a deleted session leaves what was copied from it on purpose, and nothing else', async () => {
  await plant('plain', 'mark4plain', { isEvaluated: false });
  expect(await tablesWith(client, 'mark4plain')).toEqual(
    [...COPIES, 'events', 'idempotency_keys', 'invocations', 'sessions', 'spans', 'webhook_deliveries'].toSorted(),
  );
  await ask('DELETE', `${USER}/sessions/plain`);
  expect(await tablesWith(client, 'mark4plain')).toEqual(COPIES);
});

test('with forgetMemories no word is left in any table', async () => {
  await plant('gone', 'mark4gone', { isEvaluated: true });
  expect(await tablesWith(client, 'mark4gone')).toContain('memories');
  await ask('DELETE', `${USER}/sessions/gone?forgetMemories=true`);
  expect(await tablesWith(client, 'mark4gone')).toEqual([]);
});

test('an old Idempotency-Key of a deleted session finds no session, and brings none back', async () => {
  const body = { sessionId: 'keyed', state: { said: 'mark4keyed' } };
  await ask('POST', `${USER}/sessions`, body, 'create keyed');
  const event = { author: 'user', content: content('mark4keyed') };
  await ask('POST', `${USER}/sessions/keyed/events`, event, 'append keyed');
  const artifact = { filename: 'kept.txt', artifact: { text: 'kept' } };
  await ask('POST', `${USER}/sessions/keyed/artifacts`, artifact, 'save keyed');
  await ask('DELETE', `${USER}/sessions/keyed`);
  const absent = [404, { detail: 'Session not found: keyed' }];
  const again = async (path: string, sent: object, key: string) => {
    const { status, body: answer } = await app.post(path, sent, withKey(key));
    return [status, answer];
  };
  expect(await again(`${USER}/sessions`, body, 'create keyed')).toEqual(absent);
  expect(await again(`${USER}/sessions/keyed/events`, event, 'append keyed')).toEqual(absent);
  expect((await app.get(`${USER}/sessions/keyed`)).status).toBe(404);
  // Artifacts outlive their session, and so does the answer that says what was saved.
  expect(await again(`${USER}/sessions/keyed/artifacts`, artifact, 'save keyed')).toEqual([
    200,
    expect.objectContaining({ version: 0 }),
  ]);
  expect(await tablesWith(client, 'mark4keyed')).toEqual([]);
});

test('a key of an invocation that went with its session begins nothing, nor in a new one of that name', async () => {
  const run = { user_id: 'u1', session_id: 'invoked' };
  const body = { prompt: 'say mark4invoked', harness_name: 'demo', run_agent_request: run };
  const other = { ...body, prompt: 'hello' };
  const invoke = async (sent: object, key?: string) => {
    const answer = await app.post('/harness/invoke', sent, key === undefined ? {} : withKey(key));
    return [answer.status, answer.body];
  };
  expect(await invoke(body, 'invoke')).toMatchObject([200, { error: null }]);
  const answered = await invoke(body, 'invoke');
  expect(answered).toMatchObject([200, { error: null }]);
  await ask('DELETE', `${USER}/sessions/invoked`);
  const absent = [404, { detail: 'Session not found: invoked' }];
  expect(await invoke(body, 'invoke')).toEqual(absent);
  expect((await app.get(`${USER}/sessions/invoked`)).status).toBe(404);
  expect(await tablesWith(client, 'mark4invoked')).toEqual([]);
  // A new session of the same name is another one.
  expect(await invoke(other)).toMatchObject([200, { error: null }]);
  expect(await invoke(body, 'invoke')).toEqual(absent);
  expect(await invoke(other, 'another')).toMatchObject([200, { error: null }]);
  const { body: session } = await app.get(`${USER}/sessions/invoked`);
  expect((session as { events: unknown[] }).events).toHaveLength(4);
});
