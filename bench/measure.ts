import { deepStrictEqual } from 'node:assert';
import { setTimeout as sleep } from 'node:timers/promises';
import { closedLoop, median, quantile } from './load.ts';
import type { Postgres } from './postgres.ts';
import { cpuOf, cpuOfFamily } from './processes.ts';
import { seedEmpty, withClient } from './seed.ts';
import { IN_FLIGHT, type Target } from './targets.ts';
import type { Work } from './works.ts';

/** One target's figures for one row: medians over the rounds. */
export interface Figures {
  perSecond: number;
  /** Half the distance between the best and the worst round, as a share of the median. */
  spread: number;
  p50: number;
  p99: number;
  /** CPU per request, ms. */
  serverCpu: number;
  databaseCpu: number;
}

/** A measured row. */
export interface Row {
  work: Work;
  figures: Partial<Record<Target['name'], Figures>>;
  /** Of ours, per request: statements, and how many of them were planned anew. */
  statements: number;
  plans: number;
}

/** How long to measure. */
export interface Extent {
  rounds: number;
  roundMs: number;
  /** Events that a session grows to, of all but the peer. */
  grownEvents: number;
  /** The same of the peer; 0: it is left out. */
  grownEventsOfPeer: number;
  starts: number;
  /** Sessions of the user whose pages are read. */
  pagedSessions: number;
  readMs: number;
}

/** Empty sessions that a round of invocations may use up. */
const SESSIONS_A_ROUND = 4_000;
const WARM_UP = 40;
/** Number of the request that stands before those that are counted. */
const FIRST = -1;

/**
 * Checks that all give the same answer, then measures them in turns, round after round.
 * @throws AssertionError where an answer differs
 */
export async function measureRow(work: Work, targets: Target[], postgres: Postgres, extent: Extent): Promise<Row> {
  await checkAnswers(work, targets);
  const rounds = new Map<Target['name'], Omit<Figures, 'spread'>[]>();
  for (let round = 0; round < extent.rounds; round++) {
    for (const target of targets) {
      const figures = await measureRound(work, target, postgres, extent.roundMs);
      if (figures) rounds.set(target.name, [...(rounds.get(target.name) ?? []), figures]);
    }
  }
  const figures = Object.fromEntries([...rounds].map(([name, of]) => [name, toFigures(of)])) as Row['figures'];
  const ours = targets.find(({ name }) => name === 'ours');
  return { work, figures, ...(ours ? await countStatements(work, ours) : { statements: 0, plans: 0 }) };
}

function toFigures(rounds: Omit<Figures, 'spread'>[]): Figures {
  const of = (name: keyof Omit<Figures, 'spread'>) => median(rounds.map((round) => round[name]));
  const rates = rounds.map(({ perSecond }) => perSecond);
  return {
    perSecond: of('perSecond'),
    spread: (Math.max(...rates) - Math.min(...rates)) / 2 / of('perSecond'),
    p50: of('p50'),
    p99: of('p99'),
    serverCpu: of('serverCpu'),
    databaseCpu: of('databaseCpu'),
  };
}

let users = 0;

/** A user that nobody had before, with empty sessions where the work wants them. */
async function newUser(work: Work, { name, databaseUrl }: Target, sessions: number): Promise<string> {
  const user = `u${++users}`;
  if (work.needsSessions) await seedEmpty(databaseUrl, user, FIRST, sessions, name === 'peer');
  return user;
}

async function checkAnswers(work: Work, targets: Target[]): Promise<void> {
  const answers: unknown[] = [];
  for (const target of targets) {
    const user = await newUser(work, target, 1);
    if (!target.client || !target.worker(work, user)) continue;
    answers.push(work.comparable(await target.client.text(work.request(0, user))));
  }
  for (const answer of answers) deepStrictEqual(answer, answers[0], work.name);
}

async function measureRound(
  work: Work,
  target: Target,
  postgres: Postgres,
  ms: number,
): Promise<Omit<Figures, 'spread'> | undefined> {
  const limit = SESSIONS_A_ROUND;
  const warm = target.worker(work, await newUser(work, target, WARM_UP));
  if (!warm) return undefined;
  const send = target.worker(work, await newUser(work, target, limit));
  if (!send) return undefined;
  // A first request of each user alone: the peer answers 500 when two at once find that the user is new.
  await warm(FIRST);
  await closedLoop(warm, { width: IN_FLIGHT, ms: 60_000, limit: WARM_UP });
  await send(FIRST);
  await sleep(50);
  const before = cpuNow(target, postgres);
  const round = await closedLoop(send, { width: IN_FLIGHT, ms, ...(work.needsSessions ? { limit } : {}) });
  const after = cpuNow(target, postgres);
  return {
    perSecond: round.count / round.seconds,
    p50: quantile(round.latencies, 0.5),
    p99: quantile(round.latencies, 0.99),
    serverCpu: (after.server - before.server) / round.count,
    databaseCpu: (after.database - before.database) / round.count,
  };
}

const cpuNow = ({ server }: Target, postgres: Postgres) => ({
  server: server ? cpuOf(server.pid) : 0,
  database: cpuOfFamily(postgres.pid),
});

const COUNTED = 200;

/** Statements and plans per request of ours, as pg_stat_statements counts them when all connections are warm. */
async function countStatements(work: Work, target: Target): Promise<Pick<Row, 'statements' | 'plans'>> {
  const send = target.worker(work, await newUser(work, target, COUNTED));
  if (!send) return { statements: 0, plans: 0 };
  return withClient(target.databaseUrl, async (client) => {
    const set = async (value: 'on' | 'off') => {
      await client.query(`alter system set pg_stat_statements.track_planning = ${value}`);
      await client.query('select pg_reload_conf()');
      await sleep(100);
    };
    await set('on');
    await client.query('select pg_stat_statements_reset()');
    await closedLoop(send, { width: IN_FLIGHT, ms: 60_000, limit: COUNTED });
    const { rows } = await client.query<{ calls: number; plans: number }>(
      `select sum(calls)::int as calls, sum(plans)::int as plans from pg_stat_statements
       where dbid = (select oid from pg_database where datname = current_database())
         and query !~ 'pg_stat_statements|pg_reload_conf|pg_notify'`,
    );
    await set('off');
    return { statements: (rows[0]?.calls ?? 0) / COUNTED, plans: (rows[0]?.plans ?? 0) / COUNTED };
  });
}
