import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type PostgresCluster, type PostgresStandby, startCluster } from './support/cluster.ts';
import { eventually, listPath, modelSettings, openSql, report, sessionPath, whenAtRest } from './support/faults.ts';
import { type History, historySettings, newHistory, operate, type Target, useEach } from './support/history.ts';
import { finalOrder, historyViolations, nameOf } from './support/history-checks.ts';
import { findViolations } from './support/invariants.ts';
import { type ModelServer, startModelServer } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { type FollowedStream, followStream } from './support/stream-follower.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A primary that dies under load, and its standby that becomes the primary: the service has both in `DATABASE_URL` and
 * goes on without a restart.
 */

/** Answers before the primary dies, while the standby lags where it does, and after the promotion. */
const ANSWERS = either(60, 300);
const CLIENTS = 8;
const PATIENCE_MS = either(MINUTE, 5 * MINUTE);
const LEASE_MS = paced(1_200);
const settings = { ...historySettings, SESSION_LEASE_MS: String(LEASE_MS) };
const targets: Target[] = Array.from({ length: 4 }, (_, n) => ({ userId: 'u', sessionId: `s-${n}` }));

let model: ModelServer;
beforeAll(async () => {
  model = await startModelServer();
});
afterAll(() => model.close());

let primary: PostgresCluster;
let standby: PostgresStandby;
let sql: Pool[] = [];
let servers: ServerProcess[] = [];
afterEach(async () => {
  for (const server of servers) await server.kill();
  for (const pool of sql) await pool.end();
  await standby.close();
  await primary.close();
});

/** A URL with both servers; `attributes` says which of them is wanted. */
function urlOfBoth(attributes: string): string {
  const [first, second] = [new URL(primary.url), new URL(standby.url)];
  return `postgres://postgres@${first.host},${second.host}/postgres?sslmode=disable&target_session_attrs=${attributes}`;
}

async function startPair(isSynchronous: boolean): Promise<void> {
  primary = await startCluster();
  standby = await primary.addStandby();
  sql = [openSql(primary.url), openSql(standby.url)];
  const streams = async (state: string) => {
    const { rows } = (await sql[0]?.query('select sync_state from pg_stat_replication')) ?? { rows: [] };
    return rows[0]?.sync_state === state;
  };
  await eventually('the standby streams', PATIENCE_MS, () => streams('async'));
  if (!isSynchronous) return;
  await sql[0]?.query(`alter system set synchronous_standby_names = 'standby'`);
  await sql[0]?.query('select pg_reload_conf()');
  await eventually('the standby is synchronous', PATIENCE_MS, () => streams('sync'));
}

async function startReplicas(attributes: string): Promise<void> {
  const environment = { ...modelSettings(model.baseUrl), ...settings };
  servers = await Promise.all([1, 2].map(() => startServer(urlOfBoth(attributes), environment)));
  for (const { userId, sessionId } of targets) await servers[0]?.post(listPath(userId), { sessionId });
}

/** Clients that work until `end` is called, and a stream of each session, which `endStreams` waits for. */
function startLoad() {
  const history = newHistory();
  let isOver = false;
  let isAtRest = false;
  const clients = Array.from({ length: CLIENTS }, async (_, n) => {
    const draw = random(`failover client ${n}`);
    while (!isOver) {
      await operate(history, draw, draw.pick(servers), draw.pick(targets));
      await sleep(draw.whole(0, 10));
    }
  });
  const streams = new Map(
    targets.map((target, n) => {
      const path = `${sessionPath(target.userId, target.sessionId)}/events/stream`;
      const url = (turn: number) => `${servers[(turn + n) % servers.length]?.url}${path}`;
      return [target, followStream(url, () => isAtRest)];
    }),
  );
  const end = () => {
    isOver = true;
    return Promise.all(clients);
  };
  const endStreams = async () => {
    const final = await finalOrder(sql[1] as Pool);
    const hasSentAll = ([target, { followed }]: [Target, { followed: FollowedStream }]) =>
      followed.ids.length === final.get(nameOf(target))?.length;
    const areDone = async () => [...streams].every(hasSentAll);
    await eventually('the streams have sent all', PATIENCE_MS, areDone).catch(() => undefined);
    isAtRest = true;
    await Promise.all([...streams.values()].map(({ ended }) => ended));
  };
  return { history, clients: { end }, streams, endStreams };
}

const answersOf = (history: History) => history.acked.length + history.told.length;
const moreAnswers = (history: History) => {
  const before = answersOf(history);
  const isEnough = async () => answersOf(history) >= before + ANSWERS;
  return eventually('clients get answers', PATIENCE_MS, isEnough);
};

/**
 * Kills the primary and promotes the standby. @returns the time until the next write was acknowledged, ms, and how many
 * answers came from the old primary.
 */
async function failOver(history: History): Promise<{ firstMs: number; ackedBefore: number }> {
  await primary.stopImmediately();
  await sleep(LEASE_MS); // nobody promotes at once
  const [before, ackedBefore] = [answersOf(history), history.acked.length];
  await standby.promote();
  const promotedAt = performance.now();
  await eventually('a write is acknowledged again', PATIENCE_MS, async () => answersOf(history) > before);
  return { firstMs: Math.round(performance.now() - promotedAt), ackedBefore };
}

describe('a primary that dies under load, and its standby that is promoted', () => {
  test('synchronous: nothing acknowledged is lost, nothing is doubled, and streams miss nothing', async () => {
    await startPair(true);
    await startReplicas('read-write');
    const { history, clients, streams, endStreams } = startLoad();
    await moreAnswers(history);
    const { firstMs } = await failOver(history);
    await moreAnswers(history);
    await clients.end();
    const [, database] = sql as [Pool, Pool];
    await whenAtRest(database, PATIENCE_MS);
    await useEach(servers, targets, PATIENCE_MS);
    await endStreams();
    const followed = new Map([...streams].map(([target, stream]) => [target, stream.followed]));
    const violations = await historyViolations(database, history, followed, model.asked, {
      api: servers[0] as ServerProcess,
    });
    const restarts = [...followed.values()].reduce((sum, stream) => sum + stream.restarts, 0);
    report(
      'failover, synchronous',
      `${answersOf(history)} acknowledged, ${history.unsure} unsure; ${violations.length} violations; ` +
        `streams began anew ${restarts} times; first success ${firstMs} ms after the promotion`,
    );
    expect([violations, restarts]).toEqual([[], 0]);
  });

  test('asynchronous: what came after the standby lost touch is gone, all else holds', async () => {
    await startPair(false);
    await startReplicas('primary');
    const { history, clients, streams, endStreams } = startLoad();
    await moreAnswers(history);
    const [, database] = sql as [Pool, Pool];
    const received = [...history.acked];
    await eventually('the standby has what was acknowledged so far', PATIENCE_MS, () => hasAll(database, received));
    const lagsSince = performance.now();
    await database.query(`alter system set primary_conninfo = ''`);
    await database.query('select pg_reload_conf()');
    await eventually('the standby has lost touch', PATIENCE_MS, async () => {
      const { rows } = await database.query('select from pg_stat_wal_receiver');
      return rows.length === 0;
    });
    await moreAnswers(history);
    const lagMs = Math.round(performance.now() - lagsSince);
    const { firstMs, ackedBefore } = await failOver(history);
    await moreAnswers(history);
    await clients.end();
    await whenAtRest(database, PATIENCE_MS);
    await useEach(servers, targets, PATIENCE_MS);
    await endStreams();
    const api = servers[0] as ServerProcess;
    const kept = [...received, ...history.acked.slice(ackedBefore)];
    const final = await finalOrder(database);
    const violations = [
      // An invocation that was accepted and lost is 404.
      ...history.wrong.filter((answer) => !answer.startsWith('look: 404')),
      ...(await findViolations(database, { acked: kept, api })),
      ...[...streams].flatMap(([target, { followed }]) =>
        followed.ids.join() === final.get(nameOf(target))?.join() ? [] : [`${nameOf(target)}: a stream differs`],
      ),
    ];
    const atRisk = history.acked.slice(received.length, ackedBefore);
    const lost = await findViolations(database, { acked: atRisk });
    report(
      'failover, asynchronous',
      `${history.acked.length} acknowledged, ${lost.length} lost of the ${atRisk.length} in the ${lagMs} ms in which ` +
        `the standby had lost touch; ${violations.length} other violations; streams began anew ` +
        `${[...streams.values()].reduce((sum, { followed }) => sum + followed.restarts, 0)} times; ` +
        `first success ${firstMs} ms after the promotion`,
    );
    expect(violations).toEqual([]);
    expect(lost.length).toBeGreaterThan(0);
  });
});

/** True when every acknowledged text is stored there. */
async function hasAll(database: Pool, acked: History['acked']): Promise<boolean> {
  const { rows } = await database.query<{ has: boolean }>(
    `select not exists (select from unnest($1::text[]) said where not exists (
       select from events where payload -> 'content' -> 'parts' -> 0 ->> 'text' = said)) as has`,
    [acked.map(({ said }) => said)],
  );
  return rows[0]?.has === true;
}
