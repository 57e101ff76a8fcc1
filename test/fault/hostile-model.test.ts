import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ModelRequest } from '../../src/agent/definition/model.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import type { Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { scriptedModel } from '../support/scripted-model.ts';
import { APP, eventBody, listPath, openSql, report, sessionPath } from './support/faults.ts';
import { findViolations } from './support/invariants.ts';
import { either, type Random, random } from './support/seed.ts';

/** A model that was taken over by what it read: any tool, any arguments, any ids, any size, for very many turns. */

const TURNS = either(1_000, 10_000);
const [MAX_LLM_CALLS, MAX_TOOL_CALLS] = [12, 40];
const [MAX_EVENT_BYTES, MAX_STATE_BYTES] = [200_000, 50_000];
/** Stands in everything of the other user; no model request may hold it. */
const SECRET = 'canary-of-the-victim';
const VICTIM = 'victim';
const HOSTILE = 'hostile';

const tools = [...builtInTools().values()];

/** Tools that end the invocation, or let it wait for a person, are called less often than others. */
const ENDING = new Set(['get_user_choice', 'request_input', 'exit_loop']);

const names = (draw: Random): string =>
  draw.pick([
    ...tools.flatMap(({ name }) => Array.from({ length: ENDING.has(name) ? 1 : 12 }, () => name)),
    '__proto__',
    'constructor',
    'adk_request_confirmation',
    'adk_request_credential',
    'transfer_to_agent',
    'load_skill',
    'exec',
    '../../bin/sh',
    '',
    'x'.repeat(5_000),
    'a\u0000b',
  ]);

const strings = (draw: Random, canaryUrl: string): string =>
  draw.pick([
    VICTIM,
    'victim-session',
    'note.txt',
    'user:note.txt',
    '../../victim/sessions/victim-session/artifacts/note.txt',
    `postgres://apps/${APP}/users/${VICTIM}/sessions/victim-session/artifacts/note.txt/versions/0`,
    'app:shared',
    'user:kept',
    'temp:x',
    '__proto__',
    'constructor',
    "'; drop table sessions; --",
    '${process.env}',
    canaryUrl,
    'http://169.254.169.254/latest/meta-data/',
    'file:///etc/passwd',
    'http://[::ffff:127.0.0.1]/',
    'import("child_process")',
    '9^9^9^9^9',
    '1e9!',
    '17 * 23',
    '\u0000\ud800 \uE000d800',
    'Europe/Berlin',
    '',
    'y'.repeat(draw.pick([100, 20_000, 20_000, 300_000])),
  ]);

function values(draw: Random, canaryUrl: string, depth = 0): unknown {
  const kind = draw.whole(0, depth > 3 ? 5 : 8);
  if (kind <= 3) return strings(draw, canaryUrl);
  if (kind === 4) return draw.pick([0, -1, 1e308, 2 ** 53, 1.5, -0]);
  if (kind === 5) return draw.pick([null, true, false]);
  if (kind === 6) return Array.from({ length: draw.whole(0, 4) }, () => values(draw, canaryUrl, depth + 1));
  if (kind === 7) return deep(draw.pick([50, 2_000]));
  return args(draw, canaryUrl, depth + 1);
}

const deep = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));

/** JSON.parse, so that `__proto__` is a member as it is in what a provider sends. */
function args(draw: Random, canaryUrl: string, depth = 0): Record<string, unknown> {
  const keys = [
    'key',
    'keys',
    'name',
    'names',
    'value',
    'text',
    'data',
    'mimeType',
    'url',
    'expression',
    'query',
    'timezone',
    'options',
    'question',
    '__proto__',
    'userId',
    'sessionId',
  ];
  const members = Array.from({ length: draw.whole(0, 4) }, () => {
    const value = JSON.stringify(values(draw, canaryUrl, depth + 1)) ?? 'null';
    return `${JSON.stringify(draw.pick(keys))}:${value}`;
  });
  return JSON.parse(`{${members.join(',')}}`) as Record<string, unknown>;
}

/** Arguments that the tool takes, so that much of it is really run. */
function fitting(name: string, draw: Random, canaryUrl: string): Record<string, unknown> {
  const text = () => strings(draw, canaryUrl);
  switch (name) {
    case 'write_state':
      return draw.next() < 0.5
        ? { key: `key-${draw.whole(0, 30)}`, value: 'y'.repeat(20_000) }
        : { key: text(), value: values(draw, canaryUrl) };
    case 'read_state':
      return { keys: [text(), text()] };
    case 'save_artifact':
      return { name: text(), text: text() };
    case 'load_artifacts':
      return { names: [text()] };
    case 'load_memory':
      return { query: text() };
    case 'web_fetch':
      return { url: text() };
    case 'calculator':
      return { expression: text() };
    default:
      return args(draw, canaryUrl);
  }
}

function hostilePart(draw: Random, canaryUrl: string): Part {
  const kind = draw.whole(0, 9);
  if (kind <= 7) {
    const name = names(draw);
    const id = draw.pick([undefined, undefined, 'one', 'one', '', '__proto__', 'call-\u0000', 'z'.repeat(1_000)]);
    const given = draw.next() < 0.6 ? fitting(name, draw, canaryUrl) : args(draw, canaryUrl);
    return { functionCall: { ...(id === undefined ? {} : { id }), name, args: given } };
  }
  if (kind === 8)
    return draw.pick<Part>([
      { text: strings(draw, canaryUrl) },
      { functionResponse: { id: 'one', name: names(draw), response: args(draw, canaryUrl) } },
    ]);
  return draw.pick<Part>([
    {},
    { inlineData: { mimeType: 'text/html', data: 'not base64 !' } },
    { fileData: { fileUri: 'file:///etc/passwd', mimeType: 'text/plain' } },
    { text: 'hidden', thought: true, thoughtSignature: 'AAAA' },
    { executableCode: { language: 'PYTHON', code: 'import os' } },
  ]);
}

describe('a hostile model', () => {
  let app: TestApp;
  let sql: Pool;
  let canaryUrl = '';
  let canaryHits = 0;
  let turns = 0;
  let leaks = 0;
  const draw = random('hostile model');
  const canary = createServer((_, response) => {
    canaryHits++;
    response.end(SECRET);
  });
  const model = scriptedModel([
    (request: ModelRequest) => {
      turns++;
      // The script keeps every request; a thousand histories are too much to keep.
      model.requests.length = 0;
      if (JSON.stringify(request.contents).includes(SECRET)) leaks++;
      return Array.from({ length: draw.pick([0, 1, 1, 2, 2, 3, 4]) }, () => hostilePart(draw, canaryUrl));
    },
  ]);

  beforeAll(async () => {
    await new Promise<void>((resolve) => canary.listen(0, '127.0.0.1', resolve));
    canaryUrl = `http://127.0.0.1:${(canary.address() as AddressInfo).port}/`;
    const limits = { MAX_TOOL_CALLS, MAX_EVENT_BYTES, MAX_STATE_BYTES };
    const settings = Object.fromEntries(Object.entries(limits).map(([name, value]) => [name, String(value)]));
    app = await startApp(settings, { agents: hostAgent(model, tools) });
    sql = openSql(app.databaseUrl);
    const victim = sessionPath(VICTIM, 'victim-session');
    await app.post(listPath(VICTIM), {
      sessionId: 'victim-session',
      state: { own: SECRET, 'user:kept': SECRET, 'app:shared': 'shared' },
      events: [eventBody(SECRET)],
    });
    await app.post(`${victim}/artifacts`, { filename: 'note.txt', artifact: { text: SECRET } });
    await app.post(`${victim}/artifacts`, { filename: 'user:note.txt', artifact: { text: SECRET } });
    await app.post(`/dev/apps/${APP}/eval-sets/set/add-session`, {
      evalId: 'case',
      sessionId: 'victim-session',
      userId: VICTIM,
    });
  });
  afterAll(async () => {
    await sql.end();
    await app.close();
    canary.close();
  });

  test('does nothing outside of its session, its user and its tools, and the limits hold', async () => {
    const before = await everythingElse(sql);
    let prompts = 0;
    const statuses = new Set<number>();
    while (turns < TURNS) {
      const { status } = await app.post('/harness/invoke', {
        prompt: `prompt ${++prompts}`,
        harness_name: 'hostile',
        // A history that grows without end would be the test's cost, not the model's reach.
        run_agent_request: {
          user_id: HOSTILE,
          session_id: `s-${Math.floor(prompts / 10)}`,
          max_llm_calls: MAX_LLM_CALLS,
        },
      });
      statuses.add(status);
    }
    const after = await everythingElse(sql);
    const { rows } = await sql.query<Record<'calls' | 'tools' | 'event' | 'state', number>>(
      `select (select max(llm_calls) from invocations) as calls, (select max(tool_calls) from invocations) as tools,
              (select max(octet_length(payload::text)) from events where user_id = $1) as event,
              (select max(octet_length(state::text)) from (select state from sessions
                 union all select state from user_states) s) as state`,
      [HOSTILE],
    );
    const most = rows[0] ?? { calls: 0, tools: 0, event: 0, state: 0 };
    const violations = await findViolations(sql, { users: [HOSTILE], api: app });
    report(
      'hostile model',
      `${turns} turns in ${prompts} invocations, 0 rows of others touched: ${after === before}, ` +
        `${leaks} leaks, ${canaryHits} requests to the canary; ` +
        `at most ${most.calls} model calls, ${most.tools} tool calls, ${most.event} bytes of event, ` +
        `${most.state} of state; ${violations.length} violations`,
    );
    expect(after).toBe(before);
    expect([leaks, canaryHits]).toEqual([0, 0]);
    expect(violations.slice(0, 10)).toEqual([]);
    expect([...statuses]).toEqual([200]);
    expect(most.calls).toBeLessThanOrEqual(MAX_LLM_CALLS);
    // The call that is one too many is counted, and answered with an error. One content may hold several.
    expect(most.tools).toBeLessThanOrEqual(MAX_TOOL_CALLS + 4);
    expect(most.event).toBeLessThanOrEqual(MAX_EVENT_BYTES * 1.1);
    expect(most.state).toBeLessThanOrEqual(MAX_STATE_BYTES * 1.1);
  });
});

/** All rows of every table that are not the hostile user's, as one sum. */
async function everythingElse(sql: Pool): Promise<string> {
  const { rows: tables } = await sql.query<{ name: string; owned: boolean }>(
    `select c.relname as name, exists (
       select from pg_attribute a where a.attrelid = c.oid and a.attname = 'user_id') as owned
     from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
       -- What the application gives its models, and when it did last; what all its users have used: no row of a user.
       and c.relname not in ('agent_prompts', 'budget_totals') order by 1`,
  );
  const sums: string[] = [];
  for (const { name, owned } of tables) {
    const { rows } = await sql.query<{ sum: string }>(
      `select '${name} ' || count(*) || ' ' || coalesce(md5(string_agg(t::text, '' order by t::text)), '') as sum
       from "${name}" t ${owned ? `where user_id <> '${HOSTILE}'` : ''}`,
    );
    sums.push(rows[0]?.sum ?? '');
  }
  return sums.join('\n');
}
