import createClient from 'openapi-fetch';
import type { components, paths } from './openapi.d.ts';
import { SERVICE } from './place.ts';

/** The API as its document describes it: the console calls nothing else. */

export type Schemas = components['schemas'];
export type Event = Schemas['Event'];

/** An issuer of tokens that the service takes. */
export interface IssuerSettings {
  issuer: string;
  audience?: string;
  userClaim: string;
  /** Begins the id of each of its users. */
  userPrefix?: string;
  /** The client with which people log in there; without one a token is pasted. */
  clientId?: string;
}

/** What the service says before a login. */
export interface Settings {
  version: string;
  mode: 'local' | 'key' | 'jwt' | 'key+jwt';
  issuers: IssuerSettings[];
  features: { devUi: boolean; cronjobs: boolean; webhooks: boolean; evals: boolean };
}

/** A refusal of the service, or none at all: `status` is 0 then. */
export class ApiError extends Error {
  readonly status: number;
  /** What was refused of the body, by path with slashes, and why. */
  readonly refused: ReadonlyMap<string, string>;
  constructor(status: number, message: string, refused: ReadonlyMap<string, string> = new Map()) {
    super(message);
    this.status = status;
    this.refused = refused;
  }
}

/** The page keeps it for the tab, in `login.tsx`. */
let credential: string | undefined;
let onRefusal: () => void = () => undefined;

export const setCredential = (value: string | undefined) => {
  credential = value;
};
/** Says whom to tell that the credential is not, or no more, accepted. */
export const setOnRefusal = (listener: () => void) => {
  onRefusal = listener;
};

const headersOf = (): Record<string, string> => (credential ? { authorization: `Bearer ${credential}` } : {});

export const api = createClient<paths>({ baseUrl: SERVICE });
api.use({
  onRequest({ request }) {
    for (const [name, value] of Object.entries(headersOf())) request.headers.set(name, value);
    return request;
  },
});

interface Answered<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

/** The body of an answer. @throws {ApiError} with what the service says */
export async function ask<Data>(answer: Promise<Answered<Data>>): Promise<NonNullable<Data>> {
  return (await askWhole(answer)).data;
}

/** The body of an answer, and the cursor of the page after it. */
export async function askWhole<Data>(
  answer: Promise<Answered<Data>>,
): Promise<{ data: NonNullable<Data>; cursor: string | undefined }> {
  const { data, error, response } = await answer.catch((reason: unknown) => {
    throw new ApiError(0, reason instanceof TypeError ? 'The service cannot be reached.' : String(reason));
  });
  if (!response.ok) throw toError(response.status, error);
  return { data: data as NonNullable<Data>, cursor: response.headers.get('x-next-cursor') ?? undefined };
}

function toError(status: number, body: unknown): ApiError {
  if (status === 401) onRefusal();
  const { detail } = (typeof body === 'object' && body !== null ? body : {}) as { detail?: unknown };
  if (typeof detail === 'string') return new ApiError(status, detail);
  if (Array.isArray(detail)) {
    const found = (detail as { loc?: (string | number)[]; msg?: string }[]).map(({ loc = [], msg = '' }) => ({
      loc,
      why: msg.replace(/^Value error, /, ''),
    }));
    const refused = found.flatMap(({ loc: [place, ...path], why }): [string, string][] =>
      place === 'body' && path.length > 0 ? [[path.join('/'), why]] : [],
    );
    return new ApiError(status, found.map(({ loc, why }) => `${loc.join('.')}: ${why}`).join('\n'), new Map(refused));
  }
  return new ApiError(status, `The service answered ${status}.`);
}

/** Answers a path with the bytes of a file. */
export async function fetchBytes(path: string): Promise<Blob> {
  const response = await fetch(SERVICE + path, { headers: headersOf() });
  if (!response.ok) throw toError(response.status, await response.json().catch(() => undefined));
  return response.blob();
}

/** One message of a stream: its `id`, its type, and its data as text. */
export interface Message {
  id: string;
  type: string;
  data: string;
}

/**
 * Follows a stream of server-sent events until `signal` says so, and resumes it where it broke. An `EventSource` cannot
 * send a credential.
 */
export async function follow(
  path: string,
  signal: AbortSignal,
  onMessage: (message: Message) => void,
  onLost: (isLost: boolean) => void = () => undefined,
): Promise<void> {
  let last: string | undefined;
  let pauseMs = 500;
  while (!signal.aborted) {
    try {
      const headers = { ...headersOf(), accept: 'text/event-stream', ...(last && { 'last-event-id': last }) };
      const response = await fetch(SERVICE + path, { headers, signal });
      if (!response.ok || !response.body) throw toError(response.status, await response.json().catch(() => undefined));
      pauseMs = 500;
      onLost(false);
      for await (const message of readMessages(response.body)) {
        if (message.id) last = message.id;
        onMessage(message);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      onLost(true);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    pauseMs = Math.min(pauseMs * 2, 15_000);
  }
}

async function* readMessages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const message = toMessage(block);
      if (message.data !== '') yield message;
    }
  }
}

function toMessage(block: string): Message {
  const message: Message = { id: '', type: 'message', data: '' };
  for (const line of block.split(/\r?\n/)) {
    const [, field, value = ''] = /^(\w+): ?(.*)$/s.exec(line) ?? [];
    if (field === 'id') message.id = value;
    if (field === 'event') message.type = value;
    if (field === 'data') message.data += message.data === '' ? value : `\n${value}`;
  }
  return message;
}

/** The path of a session in the API. */
export const sessionPath = ({ app, user, session }: SessionName) =>
  `/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}/sessions/${encodeURIComponent(session)}`;

export interface SessionName {
  app: string;
  user: string;
  session: string;
}

/** A session as the parameters of an operation. */
export const inPath = ({ app, user, session }: SessionName) => ({
  app_name: app,
  user_id: user,
  session_id: session,
});
