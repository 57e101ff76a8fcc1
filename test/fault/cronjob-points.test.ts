import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';
import { allEnded, allSent, insertDue, insertHook, violationsOf, wrongDeliveries } from './support/cronjobs.ts';
import { eventually, report, stage } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { type Message, type PostgresProxy, startProxy } from './support/postgres-proxy.ts';
import { either } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A process is killed before, and after, one named message to PostgreSQL on the way from a due time to the delivery of
 * how its run ended; another one goes on from there.
 */

const is =
  (statement: RegExp) =>
  ({ sql }: Message): boolean =>
    statement.test(sql);
const isClaim = is(/from claim_jobs\(/);
/** True for a claim of deliveries that gets one: others come at any time. */
const claimsDelivery = async (message: Message): Promise<boolean> => {
  if (!isClaim(message) || !message.has('delivery_work')) return false;
  const { rowCount } = await here.sql.query(
    `select from jobs where kind = 'delivery' and lease_token is null and due_time <= clock_timestamp()`,
  );
  return rowCount !== 0;
};
/** The messages in the order of that way. */
const POINTS: [name: string, comesTo: (message: Message) => boolean | Promise<boolean>][] = [
  ['look for due cronjobs', is(/from "cronjobs" where "cronjobs"\."enabled" order by/)],
  ['fire', is(/fire_cronjobs\(/)],
  ['start of the run', is(/from claim_session\(/)],
  ['end of the run', is(/from finish_invocation\(/)],
  ['claim of the delivery', claimsDelivery],
  ['answer to the delivery', is(/ended as .*update "webhook_deliveries"/s)],
];
const PLACES = (['before', 'after'] as const).flatMap((when) =>
  POINTS.map(([name, comesTo]) => ({ when, name, comesTo })),
);
const KILLS = either(PLACES.length, 50);
const JOBS_PER_KILL = 3;
const REACHED_WITHIN_MS = 2 * MINUTE;

const here = stage();
let proxy: PostgresProxy;
let receiver: Receiver;
let survivor: ServerProcess;
let settings: Record<string, string>;
beforeAll(async () => {
  receiver = await startReceiver();
  proxy = await startProxy(here.databaseUrl);
  settings = here.environment({
    CRONJOBS: 'true',
    WEBHOOKS: 'true',
    WEBHOOKS_ALLOWED_HOSTS: receiver.origin,
    REQUEST_TIMEOUT_MS: '1000',
    SESSION_LEASE_MS: String(paced(1_000)),
  });
  survivor = await startServer(here.databaseUrl, settings);
});
afterAll(async () => {
  await survivor.kill();
  await proxy.close();
  await receiver.close();
});

/** Kills a process at a place of a round that it alone works on. */
async function killAt(victim: ServerProcess, { when, comesTo }: (typeof PLACES)[number], begin: () => Promise<void>) {
  let first: Message | undefined;
  let isHeld = false;
  const holdIf = (isHere: boolean) => {
    if (!isHere) return undefined;
    isHeld = true;
    return new Promise<void>(() => undefined);
  };
  proxy.rules = {
    before: async (message) => {
      if (!first && (await comesTo(message))) first ??= message;
      await holdIf(when === 'before' && message === first);
    },
    after: (message) => holdIf(when === 'after' && message === first),
  };
  survivor.signal('SIGSTOP');
  await begin();
  await eventually('the process comes to the place', REACHED_WITHIN_MS, () => Promise.resolve(isHeld));
  await victim.kill();
  proxy.rules = {};
  proxy.cutAll();
  survivor.signal('SIGCONT');
}

test('a process killed between a due time and the delivery of its end: nothing lost, doubled or invented', async () => {
  const wrong: unknown[] = [];
  for (let kill = 0; kill < KILLS; kill++) {
    const place = PLACES[kill % PLACES.length];
    if (!place) throw new RangeError('there is no such place');
    const round = `point-${kill}`;
    const hook = await insertHook(here.sql, round, receiver);
    // Not started ahead of need: a spare process would help, and come to the place in its stead.
    const victim = await startServer(proxy.url, settings);
    await killAt(victim, place, () => insertDue(here.sql, round, JOBS_PER_KILL, 200, hook.url));
    await allEnded(here.sql, round, JOBS_PER_KILL);
    await allSent(here.sql, round);
    const violations = await violationsOf(here.sql, round);
    const deliveries = await wrongDeliveries(here.sql, round, hook, receiver);
    if (violations.length + deliveries.length > 0) wrong.push({ place, violations, deliveries });
  }
  const ends = KILLS * JOBS_PER_KILL;
  const requests = receiver.received.length;
  report('cronjob points', `${KILLS} kills at ${PLACES.length} places, ${ends} due times: ${wrong.length} violations`);
  report('cronjob points', `${ends} ends sent with ${requests} requests, each end with one id`);
  expect(wrong).toEqual([]);
});
