import { once } from 'node:events';
import { connect } from 'node:net';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { FROZEN_MS, startWatched, type WatchedService } from '../support/watched-service.ts';

const sessions = '/apps/harness_agent/users/mallory/sessions';
const FULL = { detail: 'The events of the session would be more than MAX_SESSION_BYTES. Go on in a new session.' };
const event = (text: string) => ({ author: 'user', content: { role: 'user', parts: [{ text }] } });
const MEGABYTE = 'x'.repeat(1_000_000);

describe('A: nobody stops the process by what is read', () => {
  let service: WatchedService;
  beforeAll(async () => {
    service = await startWatched({ REQUEST_TIMEOUT_MS: '2000', DEV_UI: 'true' });
    const client = new Client({ connectionString: service.databaseUrl });
    await client.connect();
    // 540 MB of text, 6 MB on disk: more than any limit lets a client store.
    await client.query(`
      insert into sessions (app_name, user_id, id, last_sequence, event_bytes)
        values ('harness_agent', 'mallory', 'huge', 540, 540054000);
      insert into events
        (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
      select 'harness_agent', 'mallory', 'huge', n, 'e' || n, 'i' || n, 'user', now(), jsonb_build_object(
        'id', 'e' || n, 'author', 'user', 'content', jsonb_build_object('role', 'user', 'parts',
        jsonb_build_array(jsonb_build_object('text', repeat('x', 1000000))))), 1000100 from generate_series(1, 540) n;
      insert into user_states (app_name, user_id, state)
        values ('harness_agent', 'states', jsonb_build_object('user:a', repeat('y', 1000000)));
      insert into sessions (app_name, user_id, id, state)
        select 'harness_agent', 'states', 's' || n, jsonb_build_object('a', repeat('x', 1000000))
        from generate_series(1, 300) n`);
    await client.end();
    await service.post(sessions, { sessionId: 'warm' });
    await service.report();
  });
  afterAll(() => service.close());

  const invoke = (sessionId: string) =>
    service.post('/harness/invoke', {
      prompt: 'hi',
      harness_name: 'harness_agent',
      run_agent_request: { user_id: 'mallory', session_id: sessionId },
    });

  /** How many bytes an answer has; it is never whole in memory. */
  async function lengthOf(path: string): Promise<number> {
    const response = await fetch(`${service.url}${path}`);
    expect(response.status).toBe(200);
    let length = 0;
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) length += chunk.length;
    return length;
  }

  async function isUnharmed(): Promise<void> {
    const { longestMs, heapMb } = await service.report();
    expect(longestMs).toBeLessThan(FROZEN_MS);
    expect(heapMb).toBeLessThan(400);
    expect(service.process.exitCode).toBeNull();
  }

  test('a session of 540 MB is refused for an invocation, a case and an event, and is read in pages', async () => {
    expect((await invoke('huge')).body).toEqual(FULL);
    const add = { evalId: 'c', sessionId: 'huge', userId: 'mallory' };
    const added = await service.post('/dev/apps/harness_agent/eval-sets/e/add-session', add);
    expect(added).toMatchObject({ status: 413, body: FULL });
    expect(await service.post(`${sessions}/huge/events`, event('hi'))).toMatchObject({ status: 413, body: FULL });
    expect(await lengthOf(`${sessions}/huge`)).toBeGreaterThan(540_000_000);
    expect(await lengthOf(`${sessions}/huge/events?limit=1000`)).toBeLessThan(16_000_000);
    await isUnharmed();
  });

  test('a session grows to 32 MB and not beyond; one invocation of it fits in memory', async () => {
    await service.post(sessions, { sessionId: 'large' });
    for (let count = 0; count < 33; count += 1) await service.post(`${sessions}/large/events`, event(MEGABYTE));
    expect(await service.post(`${sessions}/large/events`, event(MEGABYTE))).toMatchObject({ status: 413, body: FULL });
    expect((await invoke('large')).body).toMatchObject({ error: null });
    await isUnharmed();
  });

  test.each([
    ['19,000 rewinds', { actions: { rewindBeforeInvocationId: 'nothing' } }, 19_000],
    [
      '8,000 summaries',
      { actions: { compaction: { startTimestamp: -1, endTimestamp: -2, compactedContent: {} } } },
      8_000,
    ],
  ])('a history of %s costs an invocation no more than its length', async (sessionId, sent, count) => {
    const events = Array.from({ length: count }, () => ({ author: 'user', ...sent }));
    expect((await service.post(sessions, { sessionId, events })).status).toBe(200);
    await service.report();
    expect((await invoke(sessionId)).body).toMatchObject({ error: null });
    await isUnharmed();
  });

  test('numbers that are longer as they are stored count as they are stored', async () => {
    await service.post(sessions, { sessionId: 'numbers' });
    const numbers = `{"stateDelta":{"a":[${Array.from({ length: 90_000 }, () => '1e308').join()}]}}`;
    const wide = `{"author":"user","customMetadata":${numbers}}`;
    await service.post(`${sessions}/numbers/events`, wide);
    expect(await service.post(`${sessions}/numbers/events`, wide)).toMatchObject({ status: 413, body: FULL });
    await isUnharmed();
  });

  test('300 sessions with states of 1 MB, and 1 MB of the user in each, are listed in pages', async () => {
    expect(await lengthOf('/apps/harness_agent/users/states/sessions')).toBeGreaterThan(600_000_000);
    const page = await fetch(`${service.url}/apps/harness_agent/users/states/sessions?limit=100`);
    expect(page.headers.get('x-next-cursor')).not.toBeNull();
    expect((await page.text()).length).toBeLessThan(16_000_000);
    await isUnharmed();
  });

  test('300 versions of an artifact with 1 MB of custom metadata each are listed in pages', async () => {
    await service.post(`${sessions}/warm/artifacts`, { filename: 'a.txt', artifact: { text: 'x' } });
    const client = new Client({ connectionString: service.databaseUrl });
    await client.connect();
    await client.query(`
      insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, part, sha256,
        size_bytes, custom_metadata)
      select app_name, user_id, session_id, artifact_name, n, canonical_uri, part, sha256, size_bytes,
             jsonb_build_object('note', repeat('x', 1000000))
      from artifact_versions, generate_series(1, 300) n where version = 0`);
    await client.end();
    const listed = `${sessions}/warm/artifacts/a.txt/versions/metadata`;
    expect(await lengthOf(listed)).toBeGreaterThan(300_000_000);
    await isUnharmed();
  });

  test('a client that asks and does not read is given up, and its answer is not kept', async () => {
    const before = (await service.report()).sockets;
    const { hostname, port } = new URL(service.url);
    const clients = Array.from({ length: 20 }, () => connect(Number(port), hostname));
    onTestFinished(() => void clients.map((socket) => socket.destroy()));
    // What has come stays in the socket's buffer: nobody reads on.
    const answered = clients.map(async (socket) => {
      await once(socket, 'readable');
      expect(socket.readableLength).toBeGreaterThan(0);
    });
    for (const socket of clients) socket.write(`GET ${sessions}/huge HTTP/1.1\r\nhost: ${hostname}\r\n\r\n`);
    await Promise.all(answered);
    await expect.poll(async () => (await service.report()).sockets - before).toBeLessThanOrEqual(0);
    await isUnharmed();
  });
});
