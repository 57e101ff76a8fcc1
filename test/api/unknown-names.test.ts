import { once } from 'node:events';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import type { z } from 'zod';
import { isKeeping } from '../../src/core/members.ts';
import { getChildren, getDefinition, unwrap } from '../../src/core/zod-graph.ts';
import { DOOR_NAMES } from '../../src/process/config.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { pathParameters } from '../../src/platform/http/operation/paths.ts';
import { testApp } from '../support/app.ts';

/**
 * Each operation is sent what it does not know: a misspelling of a parameter, of a member of its body, of a member
 * within one. An operation of this runtime refuses that by the name that was meant and writes nothing; one of another's
 * protocol names it in a header.
 */

const app = testApp({
  CRONJOBS: 'true',
  WEBHOOKS: 'true',
  WEBHOOK_HOSTS: 'example.com',
  EVALS: 'true',
  DEV_UI: 'true',
  DOORS: DOOR_NAMES.join(','),
});

type Schema = z.core.$ZodType;
type Sample = (typeof all)[number];
const all = listAllOperations();
const own = all.filter(({ wire }) => wire === undefined);
const others = all.filter(({ wire }) => wire !== undefined);

/** A name that is none and resembles one: without the letter before its last one. */
const misspell = (name: string) =>
  name.length > 3 ? `${name.slice(0, -2)}${name.slice(-1)}` : `${name}${name.at(-1)}`;

/** The first name whose misspelling is not a name too. */
function pick(names: string[]): { sent: string; meant: string } | undefined {
  const spelt = names.map((meant) => ({ sent: misspell(meant), meant }));
  return spelt.find(({ sent, meant }) => sent.length > 3 && sent !== meant && !names.includes(sent));
}

const namesOf = (schema: Schema | undefined) => (schema ? Object.keys(getChildren(unwrap(schema)).members) : []);

/** The schema of the objects that a value holds: its own, or of a list of them. */
function objectsIn(schema: Schema): { names: string[]; isList: boolean } {
  const { element } = getDefinition(unwrap(schema));
  return { names: namesOf(element ?? schema), isList: element !== undefined };
}

function toUrl(operation: Sample, query: Record<string, string>): string {
  const path = pathParameters(operation.path).reduce(
    (url, name) =>
      url.replace(`{${name}}`, name === 'app_name' ? 'harness_agent' : name === 'version_id' ? '0' : 'edge1'),
    operation.path,
  );
  return `${path}?${new URLSearchParams(query).toString()}`;
}

const required = { user_id: 'edge1', session_id: 'edge1', state: 'edge1' };

/** Sends a request and leaves once the answer has begun, as a stream would not end. */
async function send(operation: Sample, query: Record<string, string>, body?: unknown) {
  const { body: takes, method } = operation;
  const sent = body ?? takes?.example;
  const isText = takes?.isText === true;
  const response = await fetch(`${app.url}${toUrl(operation, query)}`, {
    method: method.toUpperCase(),
    headers: takes ? { 'content-type': isText ? 'text/plain' : 'application/json', 'x-requested-with': 'test' } : {},
    ...(takes && { body: isText ? String(sent) : JSON.stringify(sent) }),
  });
  const { status, headers } = response;
  if (status !== 422) await response.body?.cancel();
  const answer = status === 422 ? ((await response.json()) as { detail?: Detail[] }) : {};
  return { status, details: answer.detail ?? [], ignored: headers.get('x-ignored-members')?.split(', ') ?? [] };
}
interface Detail {
  type: string;
  loc: (string | number)[];
  msg: string;
}

/** A misspelt member at the top of a body, and one within a member that is an object or a list of objects. */
function misspeltBodies({
  body,
}: Sample): { sent: string; meant: string; body: object; place: 'top' | 'nested'; isGiven?: boolean }[] {
  if (!body || body.isText) return [];
  const example = body.example as Record<string, unknown>;
  // Further members of an event are data.
  const top = isKeeping(unwrap(body.schema)) ? undefined : pick(namesOf(body.schema));
  const members = Object.entries(getChildren(unwrap(body.schema)).members);
  const nested = members.flatMap(([name, schema]) => {
    const { names, isList } = objectsIn(schema);
    const misspelt = pick(names);
    if (!misspelt) return [];
    const given = isList ? (example[name] as object[] | undefined)?.[0] : example[name];
    const value = { ...(typeof given === 'object' ? given : {}), [misspelt.sent]: 1 };
    const isGiven = given !== undefined;
    return [{ ...misspelt, body: { ...example, [name]: isList ? [value] : value }, place: 'nested' as const, isGiven }];
  });
  return [
    ...(top ? [{ ...top, body: { ...example, [top.sent]: 1 }, place: 'top' as const }] : []),
    ...nested.toSorted((one, other) => Number(other.isGiven) - Number(one.isGiven)).slice(0, 1),
  ];
}

/** The number of rows of each table, but for what counts requests. */
async function countRows(): Promise<Record<string, number>> {
  const client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  const { rows: tables } = await client.query<{ name: string }>(
    "select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
  );
  const counts: Record<string, number> = {};
  for (const { name } of tables) {
    if (name.startsWith('rate') || name.includes('replica') || name.includes('process')) continue;
    const { rows } = await client.query<{ count: number }>(`select count(*)::int from "${name}"`);
    counts[name] = rows[0]?.count ?? 0;
  }
  await client.end();
  return counts;
}

/** Does something for each operation, a few at a time. @returns what was wrong */
async function forEach(operations: Sample[], check: (operation: Sample) => Promise<string[]>): Promise<string[]> {
  const wrong: string[] = [];
  const rest = [...operations];
  const work = async () => {
    for (let next = rest.shift(); next; next = rest.shift()) wrong.push(...(await check(next)));
  };
  await Promise.all(Array.from({ length: 2 }, work));
  return wrong;
}

describe('an operation of this runtime', () => {
  test('refuses what it does not know, by the name that was meant, and writes nothing', async () => {
    const session = '/apps/harness_agent/users/edge1/sessions';
    await app.post(session, { sessionId: 'edge1', state: { 'user:a': 1 } });
    await app.send('PUT', '/apps/harness_agent/users/edge1/hold', { sessionId: 'edge1' });
    const before = await countRows();
    const counts = { operations: own.length, query: 0, top: 0, nested: 0, bodyless: 0 };
    const wrong = await forEach(own, async (operation) => {
      const { operationId } = operation;
      const queried = Object.keys(operation.parameters?.query?.shape ?? {});
      const parameter = pick(queried) ?? { sent: 'nothingLikeIt', meant: '' };
      const refusals: { loc: (string | number)[]; meant: string; answer: Awaited<ReturnType<typeof send>> }[] = [];
      counts.query += 1;
      const answer = await send(operation, { [parameter.sent]: 'true' });
      refusals.push({ loc: ['query', parameter.sent], meant: parameter.meant, answer });
      for (const { sent, meant, body, place } of misspeltBodies(operation)) {
        counts[place] += 1;
        refusals.push({ loc: [sent], meant, answer: await send(operation, {}, body) });
      }
      return refusals.flatMap(({ loc, meant, answer: { status, details } }) => {
        const found = details.find(({ type, loc: at }) => type === 'extra_forbidden' && at.at(-1) === loc.at(-1));
        const isSaid = meant === '' || found?.msg.includes(`did you mean \`${meant}\`?`);
        return status === 422 && found && isSaid ? [] : [`${operationId} ${loc.join('.')}: ${status} ${found?.msg}`];
      });
    });
    const bodyless = own.filter(({ body, method }) => !body && method !== 'get');
    wrong.push(
      ...(await forEach(bodyless, async (operation) => {
        counts.bodyless += 1;
        const { status, body } = await app.send(operation.method.toUpperCase(), toUrl(operation, {}), { dryRun: true });
        return status === 422 && JSON.stringify(body).includes('extra_forbidden')
          ? []
          : [`${operation.operationId} body: ${status}`];
      })),
    );
    console.log('refused', counts);
    expect(wrong).toEqual([]);
    expect(await countRows()).toEqual(before);
  });

  test('names the only member that shares a word with what was sent', async () => {
    const budget = { appliesTo: 'user', userId: 'bob', period: 'day', maxTokens: 1 };
    const { status, body } = await app.send('PUT', '/apps/harness_agent/budgets', budget);
    expect(status).toBe(422);
    expect(JSON.stringify(body)).toContain('`userId` is not known here; did you mean `forUser`?');
  });

  test('erases nobody for a parameter that it does not know', async () => {
    const user = '/apps/harness_agent/users/precious';
    await app.post(`${user}/sessions`, { sessionId: 's1' });
    for (const query of [
      'dryrun=true',
      'dry-run=true',
      'dryRun=true&dry_run=true',
      'dryRun=false&dryRun=true',
      'dry=1',
    ])
      expect([query, (await app.send('DELETE', `${user}?${query}`)).status]).toEqual([query, 422]);
    const text = JSON.stringify((await app.send('DELETE', `${user}?dryrun=true`)).body);
    expect(text).toContain('`dryrun` is not known here; did you mean `dryRun`?');
    expect((await app.send('DELETE', `${user}?dry_run=true`)).body).toMatchObject({ status: 'dryRun' });
    expect((await app.send('DELETE', user, { dryRun: true })).status).toBe(422);
    expect((await app.send('DELETE', `${user}/sessions/s1?forget_memory=true`)).status).toBe(422);
    expect((await app.get(`${user}/sessions/s1`)).status).toBe(200);
  });

  test('takes both spellings of a parameter, and says in which one it is wrong', async () => {
    const user = '/apps/harness_agent/users/held';
    await app.post(`${user}/sessions`, { sessionId: 's1' });
    await app.send('PUT', `${user}/hold`, { reason: 'a case' });
    await app.send('PUT', `${user}/hold`, { session_id: 's1', reason: 'a case' });
    // An empty name, as of a variable that is not set, is not the whole user.
    expect((await app.send('DELETE', `${user}/hold?sessionId=`)).status).toBe(422);
    expect((await app.send('DELETE', `${user}/hold?session_id=s1`)).status).toBe(200);
    const { body } = await app.get('/apps/harness_agent/holds');
    expect(body).toMatchObject([{ userId: 'held', sessionId: null }]);
    expect((await app.get(`${user}/sessions/s1/events?after_sequence=x`)).body).toMatchObject({
      detail: [{ type: 'int_parsing', loc: ['query', 'after_sequence'] }],
    });
  });
});

describe("an operation of another's protocol", () => {
  test('serves what it does not know, and names it in a header', async () => {
    const counts = { operations: others.length, query: 0, top: 0, nested: 0 };
    const wrong = await forEach(others, async (operation) => {
      const queried = Object.keys(operation.parameters?.query?.shape ?? {});
      const given = Object.fromEntries(Object.entries(required).filter(([name]) => queried.includes(name)));
      const sent = pick(queried)?.sent ?? 'nothing_like_it';
      counts.query += 1;
      const tries = [{ sent, answer: await send(operation, { ...given, [sent]: 'x' }) }];
      for (const { sent: member, body, place, isGiven } of misspeltBodies(operation)) {
        const answer = await send(operation, given, body);
        // A content is closed, as ADK's is; a member of which the example has none may need others.
        if (place === 'nested' && (!isGiven || answer.details.some(({ type }) => type === 'extra_forbidden'))) continue;
        counts[place] += 1;
        tries.push({ sent: member, answer });
      }
      return tries.flatMap(({ sent: name, answer: { status, ignored } }) =>
        ignored.includes(name) ? [] : [`${operation.operationId} ${name}: ${status} ${ignored.join()}`],
      );
    });
    console.log('named', counts);
    expect(wrong).toEqual([]);
  });

  test('names it in the answer of an upgrade too', async () => {
    const url = `${app.url.replace('http', 'ws')}/run_live?user_id=u&session_id=s&modalitis=TEXT`;
    const socket = new WebSocket(url);
    const [{ headers }] = (await once(socket, 'upgrade')) as [{ headers: Record<string, string> }];
    socket.terminate();
    expect(headers['x-ignored-members']).toBe('modalitis');
  });

  test('names at most 32 in safe characters', async () => {
    const sent = Array.from({ length: 40 }, (_, index): [string, string] => [`no\r\n${index}`, '']);
    const query = new URLSearchParams(sent);
    const { status, headers } = await app.get(`/list-apps?${query.toString()}`);
    const names = headers.get('x-ignored-members')?.split(', ');
    expect([status, names?.length, names?.[0], names?.at(-1)]).toEqual([200, 33, 'no%0D%0A0', '...']);
    expect((await app.get('/list-apps?detailed=false&detailed=true')).headers.get('x-ignored-members')).toBe(
      'detailed',
    );
    expect((await app.get('/list-apps?detailed=true')).headers.get('x-ignored-members')).toBe(null);
  });
});
