import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Messages steer runs whose processes are killed. Each one is one stored event: inside a run, or the prompt of its own
 * invocation. The model was asked with it in each request after it, and in none before.
 */

const MESSAGES = either(300, 10_000);
const PER_SESSION = 50;
const SESSIONS = MESSAGES / PER_SESSION;
/** Sessions in which messages come at the same time. */
const AT_ONCE = 6;
const CALLS = 3;
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [200, 2_000];
const REST_WITHIN_MS = either(5, 60) * MINUTE;

const textOf = ({ content }: Message) =>
  typeof content === 'string' ? content : (content ?? []).map(({ text = '' }) => text).join(' ');
const idsIn = (text: string) => Array.from(text.matchAll(/#id=(\S+)/g), ([, id = '']) => id);

/** What the model was asked: the messages, then how many results and answers came before. */
const asked = new Set<string>();
const toRequest = (ids: string[], results: number, answers: number) => JSON.stringify([ids, results, answers]);

/** Each turn calls a tool some times, then answers. */
function script(messages: Message[]): string | ScriptedCall[] {
  const isAnswer = ({ role, tool_calls }: Message) => role === 'assistant' && !tool_calls?.length;
  const isResult = ({ role }: Message) => role === 'tool';
  const ids = messages.filter(({ role }) => role === 'user').flatMap((message) => idsIn(textOf(message)));
  asked.add(toRequest(ids, messages.filter(isResult).length, messages.filter(isAnswer).length));
  const done = messages.slice(messages.findLastIndex(isAnswer) + 1).filter(isResult).length;
  return done < CALLS ? [{ name: 'calculator', arguments: { expression: '1' } }] : 'Done.';
}

const here = stage(script);

test('each message is in one event, before the first request that could have it, however often processes are killed', async () => {
  const draw = random('steers');
  const environment = here.environment({
    SESSION_LEASE_MS: String(paced(600)),
    INVOCATION_ATTEMPTS: '100',
    SESSION_QUEUE_DEPTH: '20',
    DOUBLE_TEXTING: 'steer',
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
  const names = Array.from({ length: SESSIONS }, (_, place) => `s${place}`);
  const talk = async (session: string) => {
    await survivor.post(listPath('u'), { sessionId: session });
    for (let n = 0; n < PER_SESSION; n += 1) {
      const id = `${session}.${n}`;
      const newMessage = { role: 'user', parts: [{ text: promptFor({ id, delayMs: 10 }) }] };
      for (let isTold = false; !isTold; ) {
        const at = draw.whole(0, 1) === 0 ? victim : survivor;
        const path = `${sessionPath('u', session)}/invocations`;
        const answer = await tryTo(at.post(path, { newMessage }, { 'idempotency-key': id }));
        isTold = answer?.status === 200;
        if (!isTold) await sleep(20);
      }
      await sleep(draw.whole(0, 60));
    }
  };
  const waiting = [...names];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let session = waiting.shift(); session !== undefined; session = waiting.shift()) await talk(session);
    }),
  );
  await whenAtRest(here.sql, REST_WITHIN_MS);
  isOver = true;
  await killing;
  await Promise.all([victim.kill(), victims.close(), survivor.kill()]);

  const { rows } = await here.sql.query<{ session: string; invocation: string; payload: Event }>(
    `select session_id as session, invocation_id as invocation, payload from events order by session_id, sequence`,
  );
  const invocations = await here.sql.query<{ id: string; key: string; status: string; taker: string | null }>(
    `select id, idempotency_key as key, status, steered_invocation_id as taker from invocations`,
  );
  const violations: string[] = [];
  const places = new Map<string, string[]>();
  for (const session of names) {
    const ids: string[] = [];
    let [results, answers] = [0, 0];
    for (const { invocation, payload } of rows.filter((row) => row.session === session)) {
      const parts = payload.content?.parts ?? [];
      const own = parts.flatMap(({ text }) => idsIn(text ?? ''));
      if (payload.author === 'user') {
        ids.push(...own);
        for (const id of own) places.set(id, [...(places.get(id) ?? []), invocation]);
      } else if (parts.some(({ functionResponse }) => functionResponse)) results += 1;
      else {
        if (!asked.has(toRequest(ids, results, answers)))
          violations.push(`${session}: no request with ${ids.length} messages made event ${payload.id}`);
        if (!parts.some(({ functionCall }) => functionCall)) answers += 1;
      }
    }
    for (const request of asked) {
      const [given] = JSON.parse(request) as [string[]];
      if (given[0]?.startsWith(`${session}.`) && given.some((id, place) => id !== ids[place]))
        violations.push(`${session}: the model was asked with ${given.join(' ')}`);
    }
  }
  for (const { id, key, status, taker } of invocations.rows) {
    const [place, ...more] = places.get(key) ?? [];
    if (status !== 'succeeded') violations.push(`${key}: ${status}`);
    if (place !== (taker ?? id) || more.length > 0) violations.push(`${key}: in ${places.get(key)?.join(' ')}`);
  }
  const taken = invocations.rows.filter(({ taker }) => taker !== null).length;
  const told = `${MESSAGES} messages, ${kills} kills, ${taken} taken by a run, ${violations.length} violations`;
  report('steers', told);
  expect(violations).toEqual([]);
  expect(invocations.rows).toHaveLength(MESSAGES);
  expect(taken).toBeGreaterThan(0);
  expect(here.model.badHistories).toEqual([]);
});
