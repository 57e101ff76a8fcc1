import { mkdtempSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { APP, listPath, report, stage, whenAtRest } from './support/faults.ts';
import { historySettings, readWord, type Told } from './support/history.ts';
import { refusedViolations, toldViolations } from './support/history-checks.ts';
import { checkMessages, findLate, type Messages, watchWaiting } from './support/message-checks.ts';
import { promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { messageDoors } from '../support/message-doors.ts';
import { MINUTE, SECOND } from '../support/patience.ts';

/**
 * Messages steer runs whose processes are killed, through every door, while keys are revoked and budgets run out. What
 * must hold of each is in `checkMessages`. A message is not taken after its key was revoked or its budget used up, and one
 * that is taken counts in the budget.
 */

const MESSAGES = either(300, 10_000);
const PER_SESSION = 50;
const SESSIONS = MESSAGES / PER_SESSION;
/** Sessions in which messages come at the same time, and messages of one of them that wait for their answers. */
const [AT_ONCE, UNANSWERED] = [either(6, 24), 6];
/** Of every third session: its user's invocations. */
const BUDGET = PER_SESSION / 2;
const REVOKED_KEYS = either(6, 100);
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [100, 1_500];
/** A claim that looks at a message in vain locks it for a moment, and a step at this moment leaves it to the next. */
const LATE_AT_MOST = 0.02;
/** The long run has more at once than the machine of which it is measured. */
const LEASE_MS = paced(either(600, 3_000));
const REST_WITHIN_MS = either(5, 60) * MINUTE;

const here = stage();

interface Caller {
  id: string;
  header: string;
  entry: string;
  /** By `performance.now()`: the file of keys is without it. */
  revokedAt: number;
}

const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-steer-')), 'keys');
function newCaller(id: string, scopes: Parameters<typeof createKey>[0]['scopes']): Caller {
  const { key, entry } = createKey({ id, scopes });
  return { id, header: `Bearer ${key}`, entry, revokedAt: Infinity };
}
/** As a whole: a service that reads half of it would refuse the keys that are missing. */
function writeKeys(callers: Caller[]): void {
  writeFileSync(`${file}.new`, callers.map(({ entry }) => entry).join('\n'));
  renameSync(`${file}.new`, file);
}

interface Sent {
  userId: string;
  text: string;
  caller: Caller;
  /** By `performance.now()`; the second one is absent where no answer came that said so. */
  sentAt: number;
  acceptedAt?: number;
}

/** True if neither a key nor a budget makes it wait. */
const isFree = ({ userId, caller }: Sent) => userId === 'u' && caller.revokedAt === Infinity;

/** Those that stand before one that was accepted, or seen to wait, before they were sent. */
function orderViolations(sent: Sent[], seen: ReadonlyMap<string, number>, { places }: Messages): string[] {
  const placed = sent.flatMap((each) => {
    const place = places.get(each.text);
    return place && isFree(each) ? [{ ...each, ...place }] : [];
  });
  return [...Map.groupBy(placed, ({ session }) => session).values()].flatMap((own) =>
    own.flatMap(({ text, sentAt, sequence }) => {
      const later = own.find(
        (each) =>
          Math.min(each.acceptedAt ?? Infinity, seen.get(each.text) ?? Infinity) < sentAt && each.sequence > sequence,
      );
      return later ? [`${text} stands before ${later.text}, which was accepted before it was sent`] : [];
    }),
  );
}

/** The budgets that do not hold, or whose use is not the invocations that began and the messages that were taken. */
async function budgetViolations(users: string[]): Promise<string[]> {
  const { rows } = await here.sql.query<{ user: string; counted: number; made: number }>(
    `select user_id as user, sum(invocations)::int as counted,
       (select count(*)::int from invocations i where i.user_id = u.user_id and i.status = 'succeeded') as made
     from budget_uses u where user_id = any($1) group by 1`,
    [users],
  );
  const right = rows.filter(({ counted, made }) => counted === made && counted === BUDGET).map(({ user }) => user);
  const found = new Map(rows.map((row) => [row.user, `${row.counted} counted, ${row.made} made`]));
  return users.filter((user) => !right.includes(user)).map((user) => `${user}: ${found.get(user)} of ${BUDGET}`);
}

/** Why a message did not become an answered one, by what its row says; or that nothing is there. */
function keptViolations(sent: Sent[], refused: string[], { places, rows }: Messages) {
  const violations: string[] = [];
  let refusedTurns = 0;
  for (const row of rows.values()) {
    const isOfKey = row.error?.includes('the key that requested it is not valid any more');
    const isOfBudget = row.waitsForBudget || row.reason === 'budget_exceeded';
    if (isOfKey) refusedTurns += 1;
    else if (row.status !== 'succeeded' && !isOfBudget) violations.push(`${row.id}: ${row.status}: ${row.error}`);
  }
  for (const { userId, text, caller } of sent) {
    const place = places.get(text);
    const isTaken = place && rows.get(place.eventId)?.taker !== undefined;
    if (isTaken && (place.stepAnsweredAt ?? 0) > caller.revokedAt)
      violations.push(`${text}: taken behind a step that came after key ${caller.id} was revoked`);
    if (!place && !refused.includes(text) && userId === 'u' && caller.revokedAt === Infinity)
      violations.push(`${text}: lost`);
  }
  return { violations, refusedTurns };
}

test('each message is in one event, before the first request that could have it, however often processes are killed', async () => {
  const draw = random('steers');
  const admin = newCaller('admin', ['read', 'write', 'invoke']);
  const fleeting = Array.from({ length: REVOKED_KEYS }, (_, n) => newCaller(`fleeting-${n}`, ['invoke']));
  const lasting = [newCaller('invokes', ['invoke']), newCaller('reads', ['invoke', 'read'])];
  const valid = () => [admin, ...lasting, ...fleeting].filter(({ revokedAt }) => revokedAt === Infinity);
  writeKeys(valid());
  const environment = here.environment({
    ...historySettings,
    SESSION_LEASE_MS: String(LEASE_MS),
    INVOCATION_ATTEMPTS: '100',
    SESSION_QUEUE_DEPTH: '20',
    DOUBLE_TEXTING: 'steer',
    RUNTIME_API_KEYS_FILE: file,
    MAX_INVOCATIONS_PER_MINUTE: '1000000',
    MAX_INVOCATIONS_PER_USER: '1000',
  });
  const start = () => startServer(here.databaseUrl, environment);
  const survivor = await start();
  const victims = spareServers(start);
  let victim: ServerProcess = await victims.take();
  let isOver = false;
  let kills = 0;
  const killing = (async () => {
    while (!isOver) {
      await sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS));
      const next = await victims.take();
      const dead = victim;
      victim = next;
      await dead.kill();
      kills += 1;
    }
  })();

  const sessions = Array.from({ length: SESSIONS }, (_, place) => ({
    sessionId: `s${place}`,
    userId: place % 3 === 2 ? `b${place}` : 'u',
  }));
  const limited = sessions.map(({ userId }) => userId).filter((userId) => userId !== 'u');
  await here.sql.query(
    `insert into budgets (app_name, user_id, applies_to, period, max_invocations)
     select $1, unnest($2::text[]), 'user', 'month', $3`,
    [APP, limited, BUDGET],
  );

  const seen = watchWaiting(here.sql);
  const sent: Sent[] = [];
  const told: Told[] = [];
  const refused: string[] = [];
  const wrong: string[] = [];
  const say = async (target: { userId: string; sessionId: string }, id: string): Promise<void> => {
    const [active] = fleeting.filter(({ revokedAt }) => revokedAt === Infinity);
    const caller = target.userId === 'u' && active ? draw.pick([...lasting, active]) : draw.pick(lasting);
    const { name, says = false, send } = draw.pick(messageDoors);
    const text = promptFor({ id, calls: draw.whole(1, 3), delayMs: draw.whole(0, 20) });
    const own: Sent = { userId: target.userId, text, caller, sentAt: performance.now() };
    sent.push(own);
    const headers = { authorization: caller.header, 'idempotency-key': id };
    for (let isUnsure = false; ; await sleep(20)) {
      const at = draw.whole(0, 1) === 0 ? victim : survivor;
      const answer = await tryTo(send(at, { ...target, id, text, headers }));
      const word = answer && readWord(answer);
      if (word) {
        told.push({ ...target, door: name, said: text, namesRun: says, ...word });
        own.acceptedAt = performance.now();
      }
      const isOverBudget = answer?.text.includes('budget.user') === true;
      const isGone = caller.revokedAt !== Infinity && answer?.text.includes('wrong credentials') === true;
      const isOfKey = isGone || answer?.status === 401;
      // A key that was revoked while its request waited: what that began goes on.
      isUnsure ||= isOfKey && answer.text.includes('not valid any more');
      if (isOfKey && caller.revokedAt === Infinity) wrong.push(`${text}: key ${caller.id}: ${answer.text}`);
      if (!word && !isUnsure && (isOfKey || (isOverBudget && answer?.status !== 200))) refused.push(text);
      // A failure of its own turn is an answer; errors of protocols are not, that have the status 200, too.
      const isFailure = answer?.status === 200 && !answer.text.includes('"jsonrpc"');
      if (word || isOverBudget || isFailure || isOfKey) return;
      isUnsure ||= answer === undefined || ![409, 429].includes(answer.status);
    }
  };
  const talk = async (target: { userId: string; sessionId: string }) => {
    await survivor.post(listPath(target.userId), { sessionId: target.sessionId }, { authorization: admin.header });
    const waiting = new Set<Promise<void>>();
    for (let n = 0; n < PER_SESSION; n += 1) {
      const saying = say(target, `${target.sessionId}.${n}`).finally(() => waiting.delete(saying));
      waiting.add(saying);
      if (waiting.size >= UNANSWERED) await Promise.race(waiting);
      await sleep(draw.whole(0, 60));
    }
    await Promise.all(waiting);
  };
  /** While the model is silent no run takes a message, so that those of the key wait when it goes. */
  const revoking = (async () => {
    for (const [n, key] of fleeting.entries()) {
      while (sent.length < ((n + 1) * MESSAGES) / (REVOKED_KEYS + 1)) await sleep(20);
      const speak = here.model.hold();
      const until = performance.now() + 2 * SECOND;
      const isWaiting = async () => {
        const { rowCount } = await here.sql.query(
          `select from invocations where status = 'queued' and request ->> 'keyId' = $1 limit 1`,
          [key.id],
        );
        return rowCount === 1;
      };
      while (!(await isWaiting()) && performance.now() < until) await sleep(20);
      writeKeys(valid().filter((each) => each !== key));
      key.revokedAt = performance.now();
      speak();
    }
  })();
  const left = [...sessions];
  await Promise.all([
    revoking,
    ...Array.from({ length: AT_ONCE }, async () => {
      for (let target = left.shift(); target !== undefined; target = left.shift()) await talk(target);
    }),
  ]);
  await whenAtRest(here.sql, REST_WITHIN_MS);
  isOver = true;
  await killing;
  await Promise.all([victim.kill(), victims.close(), survivor.kill()]);

  const messages = await checkMessages(here.sql, here.model.asked);
  const kept = keptViolations(sent, refused, messages);
  const watched = sent.filter((each) => isFree(each) && seen.has(each.text)).map(({ text }) => text);
  const late = findLate(messages, seen, watched);
  const violations = [
    ...wrong,
    ...messages.violations,
    ...toldViolations(told, messages),
    ...kept.violations,
    ...orderViolations(sent, seen, messages),
    ...(late.length > LATE_AT_MOST * watched.length ? late.map((text) => `${text}: late`) : []),
    ...(await refusedViolations(here.sql, refused)),
    ...(await budgetViolations(limited)),
  ];
  report(
    'steers',
    `${MESSAGES} messages, ${kills} kills, ${messages.taken} taken by a run, ${late.length} of ${watched.length} late, ` +
      `${told.length} told what became of them, ` +
      `${refused.length} refused, ${REVOKED_KEYS} keys revoked and ${kept.refusedTurns} turns refused for it, ` +
      `${limited.length} budgets used up; ${violations.length} violations`,
  );
  expect(violations.slice(0, 20)).toEqual([]);
  expect([messages.taken, watched.length, kept.refusedTurns, refused.length].map((count) => count > 0)).toEqual([
    true,
    true,
    true,
    true,
  ]);
  expect(here.model.badHistories).toEqual([]);
});
