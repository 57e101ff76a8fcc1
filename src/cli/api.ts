import { randomUUID } from 'node:crypto';
import { processEnvironment } from '../config/environment.ts';
import { CommandError } from './command-error.ts';

/** Maximum time of the look whether a service answers on this machine. */
const LOOK_MS = 1_000;
const DEFAULT_PORT = '8000';

/** The options that every command has. */
export interface GlobalOptions {
  url?: string;
  app: string;
  user: string;
  json?: boolean;
}

/** A service that commands talk to. */
export interface Api {
  url: string;
  /** Gives the answer's JSON. @throws {CommandError} with the service's own words for any answer that is no success. */
  send<Body>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Body>;
  /** Sends a body that is JSON text already. @throws {CommandError} as `send` does. */
  sendText(method: string, path: string, body: string): Promise<void>;
  /** Posts lines of text. @throws {CommandError} as `send` does. */
  sendLines<Body>(path: string, lines: string): Promise<Body>;
  /** Gives the answer while it comes. @throws {CommandError} as `send` does. */
  open(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response>;
}

/** The path of the application's sessions of the user. */
export const sessionsPath = ({ app, user }: Pick<GlobalOptions, 'app' | 'user'>): string =>
  `/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}/sessions`;

/**
 * Gives `work` a service: that of `--url`, else one that answers on this machine at `PORT`, else one that is started
 * on the database of the settings and ends with the work.
 * @param needs.running never starts one, since that would do more than was asked for
 * @throws {CommandError} when there is none
 */
export async function withApi<Result>(
  options: GlobalOptions,
  work: (api: Api) => Promise<Result>,
  needs: { running: boolean } = { running: false },
): Promise<Result> {
  const environment = processEnvironment();
  const url = options.url ?? (await findLocal(environment['PORT'] ?? DEFAULT_PORT));
  if (url !== undefined) return work(createApi(url, environment['AGENT_RUNTIME_KEY']));
  if (needs.running) throw new CommandError('No service answers on this machine: start one, or name it with --url.', 2);
  const key = randomUUID();
  // Behind a key that nobody else knows; schedules are the business of services that stay.
  const own = { HOST: '127.0.0.1', PORT: '0', DEV_UI: 'true', AUTH_MODE: 'key', RUNTIME_API_KEYS: key };
  // Loaded where it is needed: a command that talks to a service takes 0.15 s of CPU, a start 0.5.
  const [{ readConfig }, { createLog }, { startRuntime }] = await Promise.all([
    import('../config/config.ts'),
    import('../platform/log.ts'),
    import('../process/runtime.ts'),
  ]);
  const config = readConfig({ ...environment, LOG_LEVEL: 'warn', ...own, CRONJOBS: 'false', DRAIN_DELAY_MS: '0' });
  const runtime = await startRuntime({ config, log: createLog(config.LOG_LEVEL) });
  try {
    return await work(createApi(runtime.url, key));
  } finally {
    await runtime.close();
  }
}

async function findLocal(port: string): Promise<string | undefined> {
  const url = `http://127.0.0.1:${port}`;
  try {
    const response = await fetch(`${url}/version`, { signal: AbortSignal.timeout(LOOK_MS) });
    const { language } = (await response.json()) as { language?: string };
    return language === undefined ? undefined : url;
  } catch {
    return undefined;
  }
}

function createApi(url: string, key: string | undefined): Api {
  const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const request = async (
    method: string,
    path: string,
    body: string | undefined,
    signal?: AbortSignal,
    type = 'application/json',
  ) => {
    const sent = body === undefined ? {} : { body };
    const target = new URL(path, url);
    const headers = { 'content-type': type, ...authorization };
    const response = await fetch(target, { method, headers, ...sent, ...(signal ? { signal } : {}) }).catch(
      (error: unknown) => {
        if (signal?.aborted) throw error;
        throw new CommandError(`${target.origin} cannot be reached: ${reasonOf(error)}.`, 2);
      },
    );
    if (!response.ok) throw new CommandError(await refusalOf(response), 1, response.status);
    return response;
  };
  const open: Api['open'] = (method, path, body, signal) =>
    request(method, path, body === undefined ? undefined : JSON.stringify(body), signal);
  const send = async <Body>(...args: Parameters<Api['send']>): Promise<Body> => {
    const text = await (await open(...args)).text();
    return (text === '' ? undefined : JSON.parse(text)) as Body;
  };
  const sendText: Api['sendText'] = async (...args) => void (await (await request(...args)).text());
  const sendLines: Api['sendLines'] = async <Body>(path: string, lines: string) =>
    (await request('POST', path, lines, undefined, 'application/x-ndjson')).json() as Promise<Body>;
  return { url, send, sendText, sendLines, open };
}

/** The service's refusal: `detail` as a sentence, or a line for each fault of the request. */
async function refusalOf(response: Response): Promise<string> {
  const text = await response.text();
  const login = response.status === 401 ? ' Its key belongs into AGENT_RUNTIME_KEY.' : '';
  try {
    const { detail } = JSON.parse(text) as { detail?: string | { loc: unknown[]; msg: string }[] };
    if (Array.isArray(detail)) return detail.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`).join('\n');
    return (detail ?? text) + login;
  } catch {
    return `The service answered ${response.status}.${login}`;
  }
}

function reasonOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code || message : message;
}
