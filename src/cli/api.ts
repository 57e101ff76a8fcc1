import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { processEnvironment } from '../config/environment.ts';
import { HARNESS_APP } from '../core/names.ts';
import { CommandError } from './output.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** Time-out of the request that checks whether a service runs on this machine, in milliseconds. */
const PROBE_MS = 1_000;
/** How long a command waits for a service that reloads, in milliseconds. */
const RELOAD_MS = 10_000;
const POLL_MS = 200;
const DEFAULT_PORT = '8000';
const DEFAULT_DATA_DIR = '.data';
/** The user if a command has no `--user`. */
export const DEFAULT_USER = 'user';
const DEFAULTS: Record<string, string> = { app: HARNESS_APP, user: DEFAULT_USER };

export interface GlobalOptions {
  url?: string;
  app: string;
  user: string;
  json?: boolean;
}

export interface Api {
  url: string;
  /** Parses the response's JSON. @throws {CommandError} with the service's error message if the request fails */
  send<Body>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Body>;
  /** Sends a body that is already JSON text. @throws {CommandError} as `send` does */
  sendText(method: string, path: string, body: string): Promise<void>;
  /** Sends JSON Lines and returns the parsed JSON of the response. @throws {CommandError} as `send` does */
  sendLines<Body>(path: string, lines: string): Promise<Body>;
  /** Returns the response without reading its body. @throws {CommandError} as `send` does */
  open(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response>;
}

/** Options that let a suggested command address the same service, application and user; without default values. */
export const toOptions = ({ app, user, url }: GlobalOptions): string =>
  Object.entries({ app, user, url })
    .flatMap(([name, value]) => (value === undefined || value === DEFAULTS[name] ? [] : [[name, value] as const]))
    .map(([name, value]) => `--${name} ${/^[\w@:./-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`} `)
    .join('');

export const sessionsPath = ({ app, user }: Pick<GlobalOptions, 'app' | 'user'>): string =>
  `/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}/sessions`;

export const sessionPath = (options: Pick<GlobalOptions, 'app' | 'user'>, id: string): string =>
  `${sessionsPath(options)}/${encodeURIComponent(id)}`;

/**
 * Runs `work` with a service. The service is that of `--url`, or else one that runs on this machine at `PORT`, or else
 * a new one on the database of the settings. A new service stops after the work.
 * @param needs.running true: starts no service, because a started service would do more than the command says
 * @throws {CommandError} if there is no service
 */
export async function withApi<Result>(
  options: GlobalOptions,
  work: (api: Api) => Promise<Result>,
  needs: { running: boolean } = { running: false },
): Promise<Result> {
  const environment = processEnvironment();
  const url = options.url ?? (await awaitLocal(environment));
  if (url !== undefined) return named(url, work(createApi(url, environment['AGENT_RUNTIME_KEY'])));
  if (needs.running) throw new CommandError('No service answers on this machine: start one, or name it with --url.', 2);
  const key = randomUUID();
  // The random API key keeps other users of this machine out. No cronjobs, because the service stops with the command.
  const own = { HOST: '127.0.0.1', PORT: '0', DEV_UI: 'true', AUTH_MODE: '', RUNTIME_API_KEYS: key };
  // Imported on demand, because a command takes 0.15 s of CPU with a running service, and 0.5 s with these modules.
  const [{ readConfig }, { createLog }, { startRuntime }] = await Promise.all([
    import('../process/config.ts'),
    import('../platform/log.ts'),
    import('../process/runtime.ts'),
  ]);
  const config = readConfig({ ...environment, LOG_LEVEL: 'warn', ...own, CRONJOBS: 'false', DRAIN_DELAY_MS: '0' });
  const runtime = await startRuntime({ config, log: createLog(config.LOG_LEVEL) });
  try {
    return await named(runtime.url, work(createApi(runtime.url, key)));
  } finally {
    await runtime.close();
  }
}

/** @throws {CommandError} in place of the error of `fetch` for a connection that was lost within a response */
const named = <Result>(url: string, work: Promise<Result>): Promise<Result> =>
  work.catch((error: unknown) => {
    if (!(error instanceof TypeError) || error.message !== 'terminated') throw error;
    throw new CommandError(`The connection to ${url} was lost: ${toReason(error)}. The service may go on with it.`);
  });

/**
 * Finds the service of this machine. While a process holds the embedded database, as `agent-runtime dev` does while its
 * service reloads, its service is waited for, because no other one can use that database.
 */
async function awaitLocal(environment: Record<string, string | undefined>): Promise<string | undefined> {
  const { PORT = DEFAULT_PORT, DATA_DIR = DEFAULT_DATA_DIR, DATABASE_URL } = environment;
  const lock = join(DATA_DIR, 'data', 'postmaster.pid');
  const until = performance.now() + RELOAD_MS;
  let url = await findLocal(PORT);
  while (url === undefined && DATABASE_URL === undefined && existsSync(lock) && performance.now() < until) {
    await sleep(POLL_MS);
    url = await findLocal(PORT);
  }
  return url;
}

async function findLocal(port: string): Promise<string | undefined> {
  const url = `http://127.0.0.1:${port}`;
  try {
    const response = await fetch(`${url}/version`, { signal: AbortSignal.timeout(PROBE_MS) });
    const { language } = (await response.json()) as { language?: string };
    return language === undefined ? undefined : url;
  } catch {
    return undefined;
  }
}

/** Appends a path to the service's URL, which may itself have a path. */
export const toTarget = (url: string, path: string): URL =>
  new URL(new URL(url).pathname.replace(/\/+$/, '') + path, url);

function createApi(url: string, key: string | undefined): Api {
  const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const request = async (
    method: string,
    path: string,
    body: string | undefined,
    signal?: AbortSignal,
    type = 'application/json',
  ): Promise<Response> => {
    const content = body === undefined ? {} : { body };
    const target = toTarget(url, path);
    const headers = { 'content-type': type, ...authorization };
    const response = await fetch(target, { method, headers, ...content, ...(signal ? { signal } : {}) }).catch(
      (error: unknown) => {
        if (signal?.aborted) throw error;
        throw new CommandError(`${target.origin} cannot be reached: ${toReason(error)}.`, 2);
      },
    );
    if (!response.ok) {
      const refusal = await readRefusal(response, key);
      // Without the development UI a service with EVALS has the same operations below /apps.
      if (path.startsWith('/dev/') && refusal.includes('DEV_UI=true'))
        return request(method, path.slice('/dev'.length), body, signal, type);
      throw new CommandError(refusal, 1, response.status);
    }
    // Every response of an agent runtime has this header. Without it, JSON of another server would be taken for a list.
    if (!response.headers.has('x-request-id')) throw new CommandError(`${target.origin} is no agent runtime.`);
    return response;
  };
  const open: Api['open'] = (method, path, body, signal) =>
    request(method, path, body === undefined ? undefined : JSON.stringify(body), signal);
  const send = async <Body>(...args: Parameters<Api['send']>): Promise<Body> => {
    const text = await (await open(...args)).text();
    return (text === '' ? undefined : parseExactJson(text)) as Body;
  };
  const sendText: Api['sendText'] = async (...args) => void (await (await request(...args)).text());
  const sendLines: Api['sendLines'] = async <Body>(path: string, lines: string) =>
    (await request('POST', path, lines, undefined, 'application/x-ndjson')).json() as Promise<Body>;
  return { url, send, sendText, sendLines, open };
}

/** Returns the message of an error response: its `detail`, or one line for each validation error. */
export async function readRefusal(response: Response, key: string | undefined): Promise<string> {
  const text = await response.text();
  if (response.status === 401) return readLoginFailure(key);
  try {
    const { detail } = JSON.parse(text) as { detail?: string | { loc: unknown[]; msg: string }[] };
    if (Array.isArray(detail)) return detail.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`).join('\n');
    return detail ?? text;
  } catch {
    return `The service answered ${response.status}.`;
  }
}

function readLoginFailure(key: string | undefined): string {
  if (key === undefined) return 'The service asks for a credential: put its key or a token into AGENT_RUNTIME_KEY.';
  try {
    const { exp } = JSON.parse(Buffer.from(key.split('.')[1] ?? '', 'base64url').toString()) as { exp?: number };
    if (exp !== undefined && exp * 1000 <= Date.now()) return 'The token in AGENT_RUNTIME_KEY has expired.';
  } catch {
    // The credential is a key, not a JWT.
  }
  return 'The service does not accept the credential in AGENT_RUNTIME_KEY.';
}

export function toReason(error: unknown): string {
  const { cause, message } = error as Error;
  if ((cause as NodeJS.ErrnoException | undefined)?.code === 'ERR_SSL_WRONG_VERSION_NUMBER')
    return 'no https is spoken there, try http';
  return cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code || message : message;
}

/** Yields the items of all pages of a list. The cursor of the next page is in the body, or beside an array in a header. */
export async function* listItems<Item>(api: Api, path: string): AsyncGenerator<Item, void, void> {
  let cursor: string | null | undefined;
  do {
    const place = cursor ? `${path.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(cursor)}` : '';
    const response = await api.open('GET', path + place);
    const page = parseExactJson(await response.text()) as Item[] | { items: Item[]; nextCursor?: string };
    yield* Array.isArray(page) ? page : page.items;
    cursor = Array.isArray(page) ? response.headers.get('x-next-cursor') : page.nextCursor;
  } while (cursor);
}

/** Yields the `data` of each server-sent event, parsed as JSON. */
export async function* readFrames<Frame>(response: Response): AsyncGenerator<Frame, void, void> {
  let text = '';
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const frames = (text + chunk).split(/\r?\n\r?\n/);
    text = frames.pop() ?? '';
    for (const frame of frames) {
      const data = frame
        .split(/\r?\n/)
        .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []));
      if (data.length > 0) yield parseExactJson(data.join('\n')) as Frame;
    }
  }
}
