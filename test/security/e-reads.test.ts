import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ToolContext } from '../../src/agent/definition/tool.ts';
import { htmlToText } from '../../src/agent/tools/html-text.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import type { Part } from '../../src/core/content.ts';
import { measureSlowness } from '../support/slowness.ts';
import { startWatched, type WatchedService } from '../support/watched-service.ts';

/** What one read, or one call of a tool, costs the others: no answer is larger or takes longer than its bound. */

const user = '/apps/harness_agent/users/mallory';
const say = (text: string) => ({ author: 'user', content: { role: 'user', parts: [{ text }] } });
/** CPU time of the main thread in one piece, milliseconds; the goal on an idle machine is 50. */
const MAX_TURN_MS = 300;
const MEGABYTE = 1_048_576;

describe('reads of a service', () => {
  let service: WatchedService;
  const database = async <Row extends object>(sql: string): Promise<Row[]> => {
    const client = new Client({ connectionString: service.databaseUrl });
    await client.connect();
    try {
      return (await client.query<Row>(sql)).rows;
    } finally {
      await client.end();
    }
  };
  beforeAll(async () => {
    service = await startWatched({
      DEV_UI: 'true',
      CRONJOBS: 'true',
      WEBHOOKS: 'true',
      MAX_BODY_BYTES: '20000000',
      DATABASE_STATEMENT_TIMEOUT_MS: '120000',
    });
    await service.post(`${user}/sessions`, { sessionId: 'warm', events: [say('hello')] });
    await service.get(`${user}/sessions/warm/diff?other=warm`);
    await service.get(`${user}/memory?query=hello`);
    await service.report();
  });
  afterAll(() => service.close());

  test('A2: two sessions of deep values are compared in slices', async () => {
    const deep = (end: number) => `${'['.repeat(50)}${'[],'.repeat(45_000)}${end}${']'.repeat(50)}`;
    for (const [id, end] of [['a', 1] as const, ['b', 2] as const]) {
      await service.post(`${user}/sessions`, { sessionId: id });
      for (let count = 0; count < 12; count += 1) {
        await service.post(`${user}/sessions/${id}/events`, `{"author":"user","customMetadata":{"deep":${deep(end)}}}`);
      }
    }
    await service.report();
    const { body } = await service.get(`${user}/sessions/a/diff?other=b`);
    const path = `/customMetadata/deep${'/0'.repeat(49)}/45000`;
    expect(body).toMatchObject({ differingEvents: 12, firstDifference: { sequence: 1, path, value: 1, other: 2 } });
    expect((await service.report()).longestMs).toBeLessThan(MAX_TURN_MS);
  });

  test('A2: an answer is no larger than its bound, however much differs', async () => {
    const state = Object.fromEntries(Array.from({ length: 400 }, (_, n) => [`${n}`, 'x'.repeat(2_000)]));
    const events = Array.from({ length: 400 }, () => say('y'.repeat(1_900)));
    await service.post(`${user}/sessions`, { sessionId: 'much', state, events });
    const { body, text } = await service.get(`${user}/sessions/much/diff?other=warm&limit=1000`);
    expect(body).toMatchObject({ differingEvents: 400, differingKeys: 400 });
    expect(text.length).toBeLessThan(1.2 * MEGABYTE);
  });

  test('A15: a search of large memories answers no more than its bound of bytes', async () => {
    const events = Array.from({ length: 9 }, (_, n) => say(`whale ${n} ${'x '.repeat(400_000)}`));
    for (const [place, event] of events.entries()) {
      const sessionId = `large${place % 3}`;
      if (place < 3) await service.post(`${user}/sessions`, { sessionId });
      expect((await service.post(`${user}/sessions/${sessionId}/events`, event)).status).toBe(200);
    }
    for (const sessionId of ['large0', 'large1', 'large2']) {
      expect((await service.send('PATCH', `${user}/memory`, { sessionId })).status).toBe(200);
    }
    await service.report();
    const { text, body } = await service.get(`${user}/memory?query=whale&limit=100`);
    const { memories } = body as { memories: object[] };
    expect(memories.length).toBeGreaterThan(1);
    expect(text.length).toBeLessThan(MEGABYTE);
    const [{ largest } = { largest: 0 }] = await database<{ largest: number }>(
      'select max(octet_length(content::text))::int as largest from memories',
    );
    expect(largest).toBeLessThan(7 * 65_536);
  });

  test('A22: a search has at most 1,000 characters and 64 words', async () => {
    const search = async (query: string) => (await service.get(`${user}/memory?query=${query}`)).status;
    expect(await search('a%20'.repeat(64))).toBe(200);
    expect(await search('a%20'.repeat(65))).toBe(422);
    expect(await search('a,'.repeat(65))).toBe(422);
    expect(await search('a'.repeat(1_000))).toBe(200);
    expect(await search('a'.repeat(1_001))).toBe(422);
  });

  test.each([
    ['', {}],
    [', also with a key', { 'idempotency-key': 'k' }],
  ])('A22: what is added to a memory stays, batch by batch%s', async (name, headers) => {
    const sessionId = `batches${name.length}`;
    await service.post(`${user}/sessions`, { sessionId });
    const words = (from: number) => Array.from({ length: 12_000 }, (_, n) => `${sessionId}w${from + n}`).join(' ');
    for (let count = 0; count < 8; count += 1) {
      expect((await service.post(`${user}/sessions/${sessionId}/events`, say(words(count * 12_000)))).status).toBe(200);
    }
    const add = () => service.send('PATCH', `${user}/memory`, { sessionId }, headers);
    expect((await add()).text).toBe('null');
    const batches = () =>
      database<{ events: number; vectors: number }>(`
        select count(*)::int as events, max(octet_length(search_vector::text))::int as vectors from memories
        where session_id = '${sessionId}' group by xmin::text`);
    const added = await batches();
    expect(added.reduce((sum, { events }) => sum + events, 0)).toBe(8);
    // A batch ends with the event that makes it more than 256 KiB.
    expect(Math.max(...added.map(({ events }) => events))).toBeLessThanOrEqual(2);
    expect(Math.max(...added.map(({ vectors }) => vectors))).toBeLessThan(4 * 65_536);
    expect((await add()).text).toBe('null');
    expect(await batches()).toEqual(added);
  });

  test('A22: words without an end are indexed in time linear in their length', async () => {
    await service.post(`${user}/sessions`, { sessionId: 'endless', events: [say('a_'.repeat(32_000))] });
    const add = service.send('PATCH', `${user}/memory`, { sessionId: 'endless' });
    const late = new Promise((resolve) => setTimeout(() => resolve({ status: 'late' }), 30_000));
    // Uncut it takes the database a minute and a half.
    expect(await Promise.race([add, late])).toMatchObject({ status: 200 });
  });

  test('lists of runs, cronjobs and deliveries end where their texts are large, and go on from there', async () => {
    const job = {
      ownerId: 'mallory',
      name: 'n',
      prompt: 'p',
      schedule: { type: 'daily', time: '08:00', timezone: 'UTC' },
    };
    const { jobId } = (await service.post('/harness/cronjobs', { ...job, enabled: false })).body as { jobId: string };
    await database(`
      insert into sessions (app_name, user_id, id) values ('harness_agent', 'mallory', 'runs');
      insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, cronjob_id,
          run_id, due_time, is_manual, try, response_body, start_time, end_time, first_end_time)
        select 'harness_agent', 'mallory', 'runs', 'e-' || n, 'succeeded', gen_random_uuid(), now(), '${jobId}', 'r' || n,
          now() - n * interval '1 hour', false, 1, repeat('x', 400000), now(), now(), now()
        from generate_series(1, 20) n;
      insert into webhooks (app_name, user_id, id, url, host, secret, includes_output)
        values ('harness_agent', 'mallory', 'w', 'https://example.com/', 'example.com', 's', true);
      insert into webhook_deliveries
        (app_name, user_id, webhook_id, id, host, payload, status, retry_end_time, end_time)
        select 'harness_agent', 'mallory', 'w', 'd' || n, 'example.com',
          jsonb_build_object('output', repeat('x', 400000))::text, 'delivered', now(), now()
        from generate_series(1, 20) n;
      insert into cronjobs select (jsonb_populate_record(c, jsonb_build_object('id', 'c' || n,
          'name', 'n' || n, 'create_time', now() - n * interval '1 hour'))).* from cronjobs c, generate_series(1, 20) n;
      insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, cronjob_id,
          run_id, due_time, is_manual, try, response_body, start_time, end_time, first_end_time)
        select app_name, user_id, 'runs', 'e-' || id, 'succeeded', gen_random_uuid(), now(), id, 'r', now(), false, 1,
          repeat('x', 400000), now(), now(), now()
        from cronjobs where name <> 'n'`);
    for (const [path, count, id] of [
      [`/harness/cronjobs/${jobId}/runs?`, 20, 'runId'],
      ['/harness/webhooks/w/deliveries?', 20, 'deliveryId'],
      ['/harness/cronjobs?ownerId=mallory&', 21, 'jobId'],
    ] as const) {
      const seen: unknown[] = [];
      for (let cursor = ''; ; ) {
        const { status, text, body } = await service.get(`${path}limit=1000${cursor}`);
        expect([path, status]).toEqual([path, 200]);
        expect(text.length).toBeLessThan(2 * MEGABYTE);
        const page = body as { items: Record<string, unknown>[]; nextCursor?: string };
        for (const item of page.items) {
          expect(JSON.stringify(item).length).toBeGreaterThan(400_000);
          seen.push(item[id]);
        }
        if (page.nextCursor === undefined) break;
        cursor = `&cursor=${page.nextCursor}`;
      }
      expect([path, new Set(seen).size, seen.length]).toEqual([path, count, count]);
    }
  });

  test('names of artifacts are listed in pages, and a model sees the first of them', async () => {
    await database(`
      insert into artifacts (app_name, user_id, session_id, name, next_version)
        select 'harness_agent', 'mallory', case n % 2 when 0 then '' else 'warm' end,
          case n % 2 when 0 then 'user:' else '' end || n, 1 from generate_series(1, 2500) n;
      insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, part, sha256,
        size_bytes, custom_metadata)
        select app_name, user_id, session_id, name, 0, name, '{}', '', 0, '{}' from artifacts`);
    const { body } = await service.get(`${user}/sessions/warm/artifacts`);
    const names = body as string[];
    expect(names).toHaveLength(2_500);
    expect(names).toEqual(names.toSorted());
    expect((await service.get(`${user}/sessions/none/artifacts`)).body).toHaveLength(1_250);
    expect((await service.get('/apps/harness_agent/users/nobody/sessions/s/artifacts')).body).toEqual([]);
  });

  test('a trace has the newest spans, and no more bytes than it may', async () => {
    await database(`
      insert into spans (app_name, user_id, session_id, trace_id, id, name, start_ns, end_ns, attributes)
        select 'harness_agent', 'mallory', 'warm', 't', n, 'call_llm', n, n,
          jsonb_build_object('a', repeat('x', 1000000))
        from generate_series(1, 30) n`);
    const { text, body } = await service.get('/dev/apps/harness_agent/debug/trace/session/warm');
    expect(text.length).toBeLessThan(10 * MEGABYTE);
    expect((body as { span_id: string }[]).at(-1)?.span_id).toBe('30');
  });
});

test('A18: artifacts are loaded once each, and none that is too large', async () => {
  const asked: [string, number | undefined][] = [];
  const parts: Record<string, Part> = {
    large: { inlineData: { mimeType: 'image/png', data: 'A'.repeat(4_000_000) } },
    text: { text: 'hello' },
  };
  const services = {
    loadArtifact: async (name: string, _version?: number, maxBytes?: number) => {
      asked.push([name, maxBytes]);
      return parts[name];
    },
  };
  const load = builtInTools().get('load_artifacts');
  const names = ['large', 'text', ...Array.from({ length: 8 }, () => 'large')];
  const refused = { name: 'large', error: 'Too large to be loaded here.' };
  expect(await load?.run({ names }, { services, attachments: [] } as unknown as ToolContext)).toEqual({
    artifacts: [refused, { name: 'text', text: 'hello' }],
  });
  expect(asked).toEqual([
    ['large', 4_194_304],
    ['text', 1_194_304],
  ]);
});

test.each([
  ['line ends', '\n'],
  ['lines', 'a\n'],
  ['blanks', '\u00a0'],
  ['<', '<'],
  ['&', '&'],
  ['&amp;', '&amp;'],
  ['elements', '<p>'],
  ['nested elements', '<b>'],
  ['hidden elements', '<svg>'],
  ['open comments', '<!--'],
  ['attributes', '<p a=b '],
  ['titles', '<title>a b</title>'],
])('A25: 4 MiB of %s become text in slices', async (_name, piece) => {
  let longest = 0;
  let before = process.threadCpuUsage();
  const watch = setInterval(() => {
    const { user: own, system } = process.threadCpuUsage(before);
    before = process.threadCpuUsage();
    longest = Math.max(longest, (own + system) / 1000);
  }, 1);
  const html = piece.repeat((4 * MEGABYTE) / piece.length);
  const next = () => new Promise((resolve) => setTimeout(resolve, 10));
  await next();
  longest = 0;
  const { text } = await htmlToText(html, 50_000);
  await next();
  clearInterval(watch);
  expect(text.length).toBeLessThanOrEqual(50_000);
  expect(longest).toBeLessThan(MAX_TURN_MS * measureSlowness());
});
