import { expect, test } from 'vitest';
import { listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { checkMessages } from './support/message-checks.ts';
import { promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { isRenewal, type Message, type Rules } from './support/postgres-proxy.ts';
import { startServer, tryTo } from './support/server-process.ts';
import { startVictim, type Stop, stopAt } from './support/stops.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A process is killed at each message that its run sends to PostgreSQL, with a message that steers the run stored right
 * before: between that and the step that would take it, and between the step that took it and the next request to the
 * model.
 */

/** More than a run of three tool calls sends. */
const MESSAGES = 14;
const LEASE_MS = paced(4_000);

const here = stage();
const APPEND = /append_events\(/;

/** Stores a message when the run is at its point, and holds the run there. */
function rulesOf(stops: (Stop & { sql?: string })[], steer: (stop: Stop) => Promise<unknown>): Rules {
  const held = new WeakMap<Message, Stop>();
  const hold = ({ reached }: Stop): Promise<void> => {
    reached.resolve('reached');
    return new Promise(() => undefined);
  };
  return {
    async before(message) {
      const stop = isRenewal(message) ? undefined : stops.find(({ point }) => message.has(point.id));
      if (!stop) return;
      stop.seen += 1;
      if (stop.seen !== stop.message) return;
      stop.sql = message.sql;
      await steer(stop);
      if (stop.when === 'before') await hold(stop);
      else held.set(message, stop);
    },
    after(message) {
      const stop = held.get(message);
      return stop && hold(stop);
    },
  };
}

test('a message is in the run or begins a turn, once, whatever statement of the run its process dies at', async () => {
  const settings = { SESSION_LEASE_MS: String(LEASE_MS), DOUBLE_TEXTING: 'steer', DATABASE_POOL_SIZE: '128' };
  const environment = here.environment({ ...settings, DATABASE_STATEMENT_TIMEOUT_MS: String(5 * MINUTE) });
  const survivor = await startServer(here.servingUrl, environment);
  const victim = await startVictim(here.servingUrl, environment);
  const stops: (Stop & { sql?: string })[] = Array.from({ length: 2 * MESSAGES }, (_, n) => stopAt(n + 1));
  const keyOf = ({ point: { sessionId } }: Stop) => `${sessionId}.1`;
  await Promise.all(stops.map(({ point }) => survivor.post(listPath(point.userId), { sessionId: point.sessionId })));
  victim.proxy.rules = rulesOf(stops, async (stop) => {
    const { userId, sessionId } = stop.point;
    const newMessage = { role: 'user', parts: [{ text: promptFor({ id: keyOf(stop), calls: 1 }) }] };
    const path = `${sessionPath(userId, sessionId)}/invocations`;
    const { status } = await survivor.post(path, { newMessage }, { 'idempotency-key': keyOf(stop) });
    expect(status).toBe(200);
  });
  const outcomes = await Promise.all(
    stops.map(({ point: { userId, sessionId }, reached }) => {
      const prompt = promptFor({ id: `${sessionId}.0`, calls: 3 });
      const body = { prompt, harness_name: 'fault', run_agent_request: { user_id: userId, session_id: sessionId } };
      return Promise.race([reached.promise, tryTo(victim.post('/harness/invoke', body))]);
    }),
  );
  const stoppedAt = stops.filter((_, place) => outcomes[place] === 'reached');
  // Before the kill, behind which the survivor takes over, and takes messages.
  const { rows } = await here.sql.query<{ key: string; taker: string | null }>(
    `select idempotency_key as key, steered_invocation_id as taker from invocations where idempotency_key = any($1)`,
    [stoppedAt.map(keyOf)],
  );
  await victim.kill();
  const isTaken = (stop: Stop) => rows.some(({ key, taker }) => key === keyOf(stop) && taker !== null);
  const atAppends = stoppedAt.filter(({ sql = '' }) => APPEND.test(sql));
  const before = atAppends.filter(({ when }) => when === 'before');
  const behind = atAppends.filter((stop) => stop.when === 'after' && isTaken(stop));
  await whenAtRest(here.sql, 5 * MINUTE);
  await survivor.kill();
  const { violations, rows: messages, taken } = await checkMessages(here.sql, here.model.asked);
  const kept = [...messages.values()].filter(({ status }) => status === 'succeeded').map(({ key }) => key);
  const where = `${before.length} before an append, ${behind.length} behind the one that took it`;
  report('steers at points', `${stoppedAt.length} points, ${where}; ${taken} taken, ${violations.length} violations`);
  expect(violations).toEqual([]);
  expect(kept).toEqual(expect.arrayContaining(stoppedAt.map(keyOf)));
  expect(before.filter(isTaken)).toEqual([]);
  expect([before.length, behind.length, stoppedAt.length - taken].map((count) => count > 0)).toEqual([
    true,
    true,
    true,
  ]);
  expect(here.model.badHistories).toEqual([]);
});
