import { inject } from 'vitest';
import type { LiveLimits } from '../../src/features/live/live-socket.ts';
import type { Context } from '../../src/process/context.ts';
import { readConfig } from '../../src/process/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { type Runtime, startRuntime } from '../../src/process/runtime.ts';
import { SETTINGS_NOT_FOR_CLUSTERS } from './citus-exceptions.ts';
import { createTestDatabase, throughPooler } from './database.ts';
import { MINUTE, SECOND } from './patience.ts';
import { staged } from './staged.ts';

/** An answer as a client sees it. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The body as JSON; `undefined` where it is none. */
  body: unknown;
}

/** A runtime on a database of its own, spoken to over HTTP. */
export interface TestApp {
  url: string;
  databaseUrl: string;
  send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  close(): Promise<void>;
}

/** What a test replaces in the context of its runtime. */
type Overrides = Partial<Context> & { liveLimits?: LiveLimits };

/**
 * Starts the whole runtime as `npm start` does, with these settings but what a cluster refuses there. The caller closes it.
 */
export async function startApp(environment: Record<string, string> = {}, overrides: Overrides = {}): Promise<TestApp> {
  const database = await createTestDatabase();
  const runtime = await startOn(database.url, withoutRefused(environment), overrides).catch(async (error: unknown) => {
    await database.drop();
    throw error;
  });
  return {
    ...client(runtime.url),
    databaseUrl: database.url,
    close: async () => {
      await runtime.close();
      await database.drop();
    },
  };
}

/** Settings but what a cluster refuses, where the tests run on one. */
export function withoutRefused(environment: Record<string, string>): Record<string, string> {
  const refused = inject('workerUrls').length > 0 ? SETTINGS_NOT_FOR_CLUSTERS : [];
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !refused.includes(name)));
}

/** The product's limits of time are for networks that fail; here they would only say how busy the machine is. */
const PATIENT = Object.fromEntries(
  ['DATABASE_STATEMENT_TIMEOUT_MS', 'SESSION_WAIT_MS', 'SESSION_LEASE_MS'].map((name) => [name, String(2 * MINUTE)]),
);

const PATIENT_MCP = { timeouts: { connectMs: 2 * MINUTE, listMs: 2 * MINUTE, callMs: 2 * MINUTE } };

/** Starts a further replica on a database. */
export function startOn(
  databaseUrl: string,
  environment: Record<string, string> = {},
  overrides: Overrides = {},
): Promise<Runtime> {
  const pooled = throughPooler(databaseUrl);
  const settings = {
    ...PATIENT,
    DATABASE_URL: pooled ?? databaseUrl,
    ...(pooled === undefined ? {} : { DATABASE_DIRECT_URL: databaseUrl }),
    PORT: '0',
    DEV_UI: 'true',
    DRAIN_DELAY_MS: '0',
    SHUTDOWN_GRACE_MS: String(2 * SECOND),
    LOG_LEVEL: 'silent',
  };
  const config = readConfig({ ...settings, ...environment });
  const log = overrides.log ?? createLog(config.LOG_LEVEL);
  return startRuntime({ config, log, overrides, mcp: PATIENT_MCP });
}

/** Speaks HTTP to a runtime. A string body goes out as it is, anything else as JSON. */
export function client(url: string): Omit<TestApp, 'databaseUrl' | 'close'> {
  const send: TestApp['send'] = async (method, path, body, headers = {}) => {
    const sent = body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) };
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { ...type, ...headers },
      redirect: 'manual',
      ...sent,
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: toJson(text) };
  };
  return {
    url,
    send,
    get: (path, headers) => send('GET', path, undefined, headers),
    post: (path, body, headers) => send('POST', path, body, headers),
  };
}

function toJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** One runtime for the tests of the calling file or `describe`; it is there from `beforeAll` on. */
export const testApp = (environment: Record<string, string> = {}, overrides: Overrides = {}): TestApp =>
  staged(() => startApp(environment, overrides));
