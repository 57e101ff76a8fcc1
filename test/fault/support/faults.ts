import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Pool } from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { grantRights } from '../../../src/platform/db/rights.ts';
import { testDatabase } from '../../support/database.ts';
import {
  type ModelServer,
  MODEL_TOOLS,
  promptFor,
  type Prompt,
  type Script,
  startModelServer,
} from './model-server.ts';

/** The application of every session here. */
export const APP = 'harness_agent';
export const sessionPath = (userId: string, sessionId: string) => `/apps/${APP}/users/${userId}/sessions/${sessionId}`;
export const listPath = (userId: string) => `/apps/${APP}/users/${userId}/sessions`;

/** The body of `POST /harness/invoke` for a prompt of the model server. */
export const invokeBody = (userId: string, sessionId: string, prompt: Prompt) => ({
  prompt: promptFor(prompt),
  harness_name: 'fault',
  run_agent_request: { user_id: userId, session_id: sessionId },
});

/** The body of an appended event that says something unique. */
export const eventBody = (said: string, stateDelta: Record<string, unknown> = {}) => ({
  author: 'user',
  content: { role: 'user', parts: [{ text: said }] },
  actions: { stateDelta },
});

/** A database, a model and a connection to look with: what each file of fault tests has for itself. */
export interface Stage {
  readonly databaseUrl: string;
  /** The same for a role that serves: it owns nothing and is held to row-level security. */
  readonly servingUrl: string;
  readonly model: ModelServer;
  /** Connections that go past every proxy. */
  readonly sql: Pool;
  /** The settings of a process that uses this model. */
  environment(more?: Record<string, string>): Record<string, string>;
}

/** The stage of the calling file or `describe`; it is there from `beforeAll` on. The model does what `script` says. */
export function stage(script?: Script): Stage {
  const database = testDatabase();
  let model: ModelServer | undefined;
  let sql: Pool | undefined;
  let serving: string | undefined;
  beforeAll(async () => {
    serving = await toServingUrl(database.url);
    model = await startModelServer(script);
    sql = openSql(database.url);
  });
  afterAll(async () => {
    await sql?.end();
    await model?.close();
  });
  return {
    get databaseUrl() {
      return database.url;
    },
    get servingUrl() {
      if (serving === undefined) throw new TypeError('the role exists from beforeAll on');
      return serving;
    },
    get model() {
      if (!model) throw new TypeError('the model exists from beforeAll on');
      return model;
    },
    get sql() {
      if (!sql) throw new TypeError('the connections exist from beforeAll on');
      return sql;
    },
    environment: (more = {}) => ({ ...modelSettings(model?.baseUrl ?? ''), ...more }),
  };
}

/** Makes the role where it is absent: it is that of all databases of the server. */
async function toServingUrl(databaseUrl: string): Promise<string> {
  const [role, password] = ['agent_runtime_fault_server', 'geheim'];
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  await client.query(`
    do $$ begin create role ${role} login nosuperuser nobypassrls password '${password}';
    exception when duplicate_object or unique_violation then null; end $$`);
  await grantRights(client, 'public', role);
  await client.end();
  return Object.assign(new URL(databaseUrl), { username: role, password }).href;
}

/** The settings that lead a process to a model server. */
export const modelSettings = (baseUrl: string): Record<string, string> => ({
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'scripted',
  MODEL_BASE_URL: baseUrl,
  MODEL_API_KEY: 'none',
  TOOLS: MODEL_TOOLS,
});

/** Connections that outlive the faults of others: a broken one fails its query only. */
export function openSql(url: string): Pool {
  const pool = new Pool({ connectionString: url, max: 4 });
  pool.on('error', () => undefined);
  return pool;
}

/**
 * Asks again until `check` is true. @throws {Error} with the sentence after `withinMs`. @returns the milliseconds it
 * took.
 */
export async function eventually(what: string, withinMs: number, check: () => Promise<boolean>): Promise<number> {
  const startedAt = performance.now();
  while (!(await check())) {
    if (performance.now() - startedAt > withinMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await sleep(20);
  }
  return Math.round(performance.now() - startedAt);
}

/** Waits until no invocation runs or waits. */
export const whenAtRest = (sql: Pool, withinMs: number): Promise<number> =>
  eventually('every invocation has ended', withinMs, async () => {
    const { rows } = await sql.query<{ open: number }>(
      `select count(*)::int as open from invocations where status in ('running', 'queued')`,
    );
    return rows[0]?.open === 0;
  });

/** Prints the figures of a test, in one line. */
export const report = (name: string, figures: string): void => console.log(`  ${name}: ${figures}`);
