import { Client } from 'pg';
import type { LoadClient } from './load.ts';

/** What all that is measured find in their databases. */

export const APP = 'harness_agent';
export const sessionsPath = (user: string) => `/apps/${APP}/users/${user}/sessions`;
/** Users whose one session has so many events of 1 KB, and users with so many sessions. */
const EVENT_COUNTS = [10, 100, 1_000, 3_000];
const SESSION_COUNTS = [10, 100, 1_000];
export const ARTIFACT = { filename: 'note.txt', artifact: { text: 'hello' } };

const text = (n: number) => `event ${n} `.repeat(128).slice(0, 900);
const stateOf = (n: number) => ({ topic: 'weather', count: n });

/** Over HTTP, so that all is there that the runtime itself keeps. */
export async function seedRuntime(client: LoadClient): Promise<void> {
  for (const count of EVENT_COUNTS) {
    const events = Array.from({ length: count }, (_, n) => ({
      id: `event-${n}`,
      invocationId: 'seed',
      author: 'user',
      content: { role: 'user', parts: [{ text: text(n) }] },
      timestamp: 1_790_000_000 + n,
    }));
    await client.send({ method: 'POST', path: sessionsPath(`e${count}`), body: { sessionId: 's', events } });
  }
  for (const count of SESSION_COUNTS) await seedSessions(client, `l${count}`, count);
  await client.send({ method: 'POST', path: `${sessionsPath('e10')}/s/artifacts`, body: ARTIFACT });
}

/** So many sessions of one user, one after the other: their order is the same everywhere. */
export async function seedSessions(client: LoadClient, user: string, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    const body = { sessionId: `session-${String(n).padStart(5, '0')}`, state: stateOf(n) };
    await client.send({ method: 'POST', path: sessionsPath(user), body });
  }
}

/** The peer has no import: rows, as its `appendEvent` and `createSession` write them. */
export async function seedPeer(url: string): Promise<void> {
  await withClient(url, async (client) => {
    for (const count of EVENT_COUNTS) {
      const key = [`e${count}`, 's', APP];
      await client.query(
        `insert into sessions (id, app_name, user_id, state, create_time, update_time)
         values ($2, $3, $1, '{}', now(), now())`,
        key,
      );
      const rows = Array.from({ length: count }, (_, n) => ({
        id: `event-${n}`,
        event_data: {
          id: `event-${n}`,
          invocation_id: 'seed',
          author: 'user',
          content: { role: 'user', parts: [{ text: text(n) }] },
          actions: {},
          timestamp: (1_790_000_000 + n) * 1000,
        },
      }));
      await client.query(
        `insert into events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
         select id, $3, $1, $2, 'seed', to_timestamp((event_data ->> 'timestamp')::float8 / 1000), event_data
         from jsonb_to_recordset($4::jsonb) as given(id text, event_data jsonb)`,
        [...key, JSON.stringify(rows)],
      );
    }
    for (const count of SESSION_COUNTS) {
      const ids = Array.from({ length: count }, (_, n) => `session-${String(n).padStart(5, '0')}`);
      await client.query(
        `insert into sessions (id, app_name, user_id, state, create_time, update_time)
         select id, $2, $3, state::jsonb, now(), now() from unnest($1::text[], $4::text[]) as given(id, state)`,
        [ids, APP, `l${count}`, ids.map((_, n) => JSON.stringify(stateOf(n)))],
      );
    }
    await client.query('analyze');
  });
}

/** Empty sessions for invocations, which every one of them wants to find. */
export async function seedEmpty(
  url: string,
  user: string,
  first: number,
  count: number,
  isPeer: boolean,
): Promise<void> {
  const columns = isPeer ? 'create_time, update_time' : 'initial_state, event_bytes';
  const values = isPeer ? 'now(), now()' : `'{}', 0`;
  await withClient(url, (client) =>
    client.query(
      `insert into sessions (app_name, user_id, id, state, ${columns})
       select $1, $2, 's' || n, '{}', ${values} from generate_series($3::int, $4::int - 1) n`,
      [APP, user, first, count],
    ),
  );
}

/** Lends a connection of its own. */
export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
