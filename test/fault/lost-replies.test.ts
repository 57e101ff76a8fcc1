import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { eventBody, invokeBody, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { type Acked, findViolations } from './support/invariants.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { isRenewal, type Message, type PostgresProxy, type Rules, startProxy } from './support/postgres-proxy.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * The connection breaks after PostgreSQL has done a statement and before the process hears of it, COMMIT included; then
 * before the statement arrives. The process lives on. What was done must not be done again, what was not done must not
 * be told.
 */

const LEASE_MS = paced(3_000);
const REST_WITHIN_MS = 2 * MINUTE;
const MOST_MESSAGES = 12;
/** A request that waits for its turn looks again and again: its sweep ends here. */
const MOST_MESSAGES_IN_QUEUE = 7;

const here = stage();
let proxy: PostgresProxy;
let server: ServerProcess;

interface Operation {
  name: string;
  prepare?(userId: string, sessionId: string): Promise<unknown>;
  run(userId: string, sessionId: string, id: string): Promise<Answer>;
  acked(userId: string, sessionId: string, id: string): Acked;
}

const create = (userId: string, sessionId: string) => server.post(listPath(userId), { sessionId });
const invoking = (calls: number): Pick<Operation, 'run' | 'acked'> => ({
  run: (userId, sessionId, id) =>
    server.post('/harness/invoke', invokeBody(userId, sessionId, { id, calls }), { 'idempotency-key': id }),
  acked: (userId, sessionId, id) => ({
    userId,
    sessionId,
    said: promptFor({ id, calls }),
    answered: answerFor(id),
    idempotencyKey: id,
  }),
});

const operations: Operation[] = [
  {
    name: 'create',
    run: (userId, sessionId, id) => server.post(listPath(userId), { sessionId, events: [eventBody(id, { own: id })] }),
    acked: (userId, sessionId, id) => ({ userId, sessionId, said: id }),
  },
  {
    name: 'append',
    prepare: create,
    run: (userId, sessionId, id) => server.post(`${sessionPath(userId, sessionId)}/events`, eventBody(id, { own: id })),
    acked: (userId, sessionId, id) => ({ userId, sessionId, said: id }),
  },
  { name: 'invoke with 0 tool calls', ...invoking(0) },
  { name: 'with 3', prepare: create, ...invoking(3) },
  {
    name: 'in the queue',
    prepare: async (userId, sessionId) => {
      const id = randomUUID();
      void server.post('/harness/invoke', invokeBody(userId, sessionId, { id, delayMs: 250 })).catch(() => undefined);
      while ((await server.get(sessionPath(userId, sessionId))).status === 404);
    },
    ...invoking(0),
  },
];

/**
 * Breaks the connection of the n-th message that names the invocation or the session; tells whether it came to that.
 */
function cutAt(marker: string, n: number, when: 'before' | 'after'): { rules: Rules; wasCut: () => boolean } {
  const connections = new Set<number>();
  let seen = 0;
  let wanted: Message | undefined;
  const isMine = (message: Message) => {
    if (message.has(marker)) connections.add(message.connection);
    else if (!/^(?:commit|rollback)$/i.test(message.sql) || !connections.delete(message.connection)) return false;
    return !isRenewal(message);
  };
  return {
    wasCut: () => wanted !== undefined,
    rules: {
      before(message) {
        if (wanted || !isMine(message) || ++seen !== n) return;
        wanted = message;
        if (when === 'before') message.cut();
      },
      after(message) {
        if (message === wanted) message.cut();
      },
    },
  };
}

interface Figures {
  cuts: number;
  succeeded: number;
  refused: number;
  violations: string[];
}

/** One operation with one broken connection. */
async function once(operation: Operation, n: number, when: 'before' | 'after', figures: Figures): Promise<boolean> {
  const id = randomUUID();
  const [userId, sessionId] = [`u-${id}`, `s-${id}`];
  await operation.prepare?.(userId, sessionId);
  // What a queue's holder does has the session's id too; the waiter's own statements carry its key.
  const { rules, wasCut } = cutAt(operation.name === 'in the queue' ? id : sessionId, n, when);
  proxy.rules = rules;
  const answer = await operation.run(userId, sessionId, id);
  proxy.rules = {};
  if (!wasCut()) return false;
  figures.cuts++;
  const { error } = (answer.body ?? {}) as { error?: string | null };
  const told = answer.status === 200 && (error === undefined || error === null);
  if (told) figures.succeeded++;
  else figures.refused++;
  const next = randomUUID();
  const again = await server.post('/harness/invoke', invokeBody(userId, sessionId, { id: next }));
  await whenAtRest(here.sql, REST_WITHIN_MS);
  const acked = operation.acked(userId, sessionId, id);
  const { rows } = await here.sql.query<{ copies: number }>(
    `select count(*)::int as copies from events
     where user_id = $1 and payload -> 'content' -> 'parts' -> 0 ->> 'text' = $2`,
    [userId, acked.said],
  );
  const found = [
    ...(told || (answer.status === 503 && ['retry-after', 'x-invocation-id'].some((name) => answer.headers.has(name)))
      ? []
      : [`answered ${answer.status} ${answer.text}`]),
    ...((again.body as { output?: string }).output === answerFor(next)
      ? []
      : [`the next invocation: ${again.status} ${again.text}`]),
    ...((rows[0]?.copies ?? 0) <= 1 ? [] : [`done ${rows[0]?.copies} times`]),
    ...(await findViolations(here.sql, { users: [userId], acked: told ? [acked] : [], api: server })),
    ...(acked.idempotencyKey === undefined
      ? []
      : await retryViolations(operation, userId, sessionId, id, told ? answer : undefined)),
  ];
  figures.violations.push(...found.map((violation) => `${operation.name}, ${when} message ${n}: ${violation}`));
  return true;
}

/**
 * I6: a retry with the same key gets the stored answer, or runs what was never run; what the client heard stays true.
 */
async function retryViolations(
  operation: Operation,
  userId: string,
  sessionId: string,
  id: string,
  first: Answer | undefined,
): Promise<string[]> {
  const retried = await operation.run(userId, sessionId, id);
  if (first && retried.text !== first.text) return [`I6: answered ${first.text}, retried ${retried.text}`];
  if (retried.status !== 200) return [`I6: the retry was answered with ${retried.status} ${retried.text}`];
  return findViolations(here.sql, { users: [userId], acked: first ? [operation.acked(userId, sessionId, id)] : [] });
}

describe('a reply of PostgreSQL that is lost', () => {
  beforeAll(async () => {
    proxy = await startProxy(here.databaseUrl);
    server = await startServer(proxy.url, here.environment({ SESSION_LEASE_MS: String(LEASE_MS) }));
  });
  afterAll(async () => {
    await server.kill();
    await proxy.close();
  });

  test.each(['after', 'before'] as const)('%s the statement was done: nothing twice, nothing lost', async (when) => {
    const all: [string, Figures][] = [];
    for (const operation of operations) {
      const figures: Figures = { cuts: 0, succeeded: 0, refused: 0, violations: [] };
      const most = operation.name === 'in the queue' ? MOST_MESSAGES_IN_QUEUE : MOST_MESSAGES;
      for (let n = 1; n <= most && (await once(operation, n, when, figures)); n++);
      all.push([operation.name, figures]);
    }
    const violations = all.flatMap(([, figures]) => figures.violations);
    const figures = all.map(
      ([name, { cuts, succeeded, refused }]) => `${name} ${cuts} (${succeeded} answered, ${refused} refused)`,
    );
    report(`connections cut ${when} a statement`, `${figures.join(', ')}; ${violations.length} violations`);
    expect(violations).toEqual([]);
    for (const [, { cuts }] of all) expect(cuts).toBeGreaterThan(0);
    expect(here.model.badHistories).toEqual([]);
  });
});
