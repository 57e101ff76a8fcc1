import type { Pool } from 'pg';
import type { Event } from '../../../src/core/event.ts';
import type { Message, ScriptedCall } from './model-server.ts';

/** Tool calls of each turn, before its answer. */
const CALLS = 3;

const textOf = ({ content }: Message) =>
  typeof content === 'string' ? content : (content ?? []).map(({ text = '' }) => text).join(' ');
const idsIn = (text: string) => Array.from(text.matchAll(/#id=(\S+)/g), ([, id = '']) => id);
const toRequest = (ids: string[], results: number, answers: number) => JSON.stringify([ids, results, answers]);

/** Messages that steer, by their ids, which are their idempotency keys, too. */
export class SteeredModel {
  /** What the model was asked: the messages, then how many results and answers came before. */
  readonly #asked = new Set<string>();

  /** Each turn calls a tool some times, then answers. */
  readonly script = (messages: Message[]): string | ScriptedCall[] => {
    const isAnswer = ({ role, tool_calls }: Message) => role === 'assistant' && !tool_calls?.length;
    const isResult = ({ role }: Message) => role === 'tool';
    const ids = messages.filter(({ role }) => role === 'user').flatMap((message) => idsIn(textOf(message)));
    this.#asked.add(toRequest(ids, messages.filter(isResult).length, messages.filter(isAnswer).length));
    const done = messages.slice(messages.findLastIndex(isAnswer) + 1).filter(isResult).length;
    return done < CALLS ? [{ name: 'calculator', arguments: { expression: '1' } }] : 'Done.';
  };

  /** What is wrong in sessions, and how many of the messages with these ids a run took. */
  async check(sql: Pool, sessions: readonly string[], keys: readonly string[]) {
    const { rows } = await sql.query<{ session: string; invocation: string; payload: Event }>(
      `select session_id as session, invocation_id as invocation, payload from events order by session_id, sequence`,
    );
    const invocations = await sql.query<{ id: string; key: string; status: string; taker: string | null }>(
      `select id, idempotency_key as key, status, steered_invocation_id as taker from invocations
       where idempotency_key = any($1)`,
      [keys],
    );
    const violations: string[] = [];
    const places = new Map<string, string[]>();
    for (const session of sessions) {
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
          if (!this.#asked.has(toRequest(ids, results, answers)))
            violations.push(`${session}: no request with ${ids.length} messages made event ${payload.id}`);
          if (!parts.some(({ functionCall }) => functionCall)) answers += 1;
        }
      }
      for (const request of this.#asked) {
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
    const missing = keys.length - invocations.rows.length;
    if (missing > 0) violations.push(`${missing} messages are in no row`);
    return { violations, taken: invocations.rows.filter(({ taker }) => taker !== null).length };
  }
}
