import { hash } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { sendChat } from '../../support/chat-wire.ts';

/**
 * A model for many processes at once: what it does is written in the prompt, so that it keeps nothing between requests.
 */
export interface ModelServer {
  baseUrl: string;
  /**
   * Requests whose history no provider would accept: a call without its answer right behind it, an answer without a
   * call.
   */
  badHistories: string[];
  /** What it was asked, by signature: each of its answers has that of its request, as `modelVersion`. */
  asked: ReadonlyMap<string, AskedMessages>;
  /** Requests so far, or those of the prompt with this id. */
  requests(id?: string): number;
  /** Holds every answer back from now on, until what is returned is called. */
  hold(): () => void;
  close(): Promise<void>;
}

/** The messages of users in a request. Requests with the same messages and as many results behind the last are one. */
export interface AskedMessages {
  prefix: string;
  /** The ids of the last ones. */
  last: string[];
  /** When the first of these requests was answered, by `performance.now()`. */
  answeredAt: number;
}

/** A message as OpenAI's chat completions have it. */
export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string | null | { text?: string }[];
  tool_calls?: { id: string }[];
  tool_call_id?: string;
}

interface Asked {
  messages: Message[];
  stream?: boolean;
}

/** A function call as this model makes it. */
export interface ScriptedCall {
  name: string;
  arguments: Record<string, unknown>;
}

/** What `promptFor` asks the model to do. */
export interface Prompt {
  /** Unique: it comes back as the answer `answer <id>`. */
  id: string;
  /** Tool calls, one per step. */
  calls?: number;
  /** Time before each answer of the model. */
  delayMs?: number;
}

/** The text of a prompt for {@link startModelServer}. */
export const promptFor = ({ id, calls = 0, delayMs = 0 }: Prompt): string =>
  `#id=${id} #calls=${calls} #delay=${delayMs}`;
/** The ids of the messages in a text. */
export const idsIn = (text: string): string[] => Array.from(text.matchAll(/#id=(\S+)/g), ([, id = '']) => id);
/** Says which messages a request has, in their order. */
export const prefixOf = (ids: string[]): string => `${ids.length}-${hash('sha1', ids.join(' '))}`;
/** Says which request made an answer: one with these messages, and so many results behind the last of them. */
export const signatureOf = (prefix: string, results: number): string => `asked-${prefix}-${results}`;
/** What the model answers in the end. */
export const answerFor = (id: string): string => `answer ${id}`;
/** The ids of the messages to which a client was answered, but for those of the conversation before. */
export const answersIn = (text: string): string[] => {
  const lines = text.split('\n').filter((line) => !line.includes('MESSAGES_SNAPSHOT'));
  return Array.from(lines.join('\n').matchAll(/answer ([\w.-]+)/g), ([, id = '']) => id);
};

/**
 * Ids of calls are unique within a prompt only, as those of many servers are. The calls take turns: one that changes
 * the state, one that saves an artifact, one that only computes.
 */
const callsOf = (id: string): ScriptedCall[] => [
  { name: 'write_state', arguments: { key: `tool-${id}`, value: id } },
  { name: 'save_artifact', arguments: { name: `file-${id}`, text: id } },
  { name: 'calculator', arguments: { expression: '17 * 23' } },
];
/** The tools that the deployed agent needs for it. */
export const MODEL_TOOLS = 'write_state,save_artifact,calculator';

/** Chooses an answer: a text, or calls. */
export type Script = (messages: Message[], prompt: { id: string; calls: number }) => string | ScriptedCall[];

/** Starts a model on loopback that speaks OpenAI's chat completions [and does what the prompt says]. */
export async function startModelServer(script: Script = asPrompted): Promise<ModelServer> {
  const badHistories: string[] = [];
  const asked = new Map<string, AskedMessages>();
  let requests = 0;
  const byId = new Map<string, number>();
  let held = Promise.resolve();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      requests++;
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Asked;
      const { messages } = body;
      const ids = idsOf(messages);
      const prefix = prefixOf(ids);
      const signature = signatureOf(prefix, countResults(messages));
      const bad = findBadHistory(messages);
      if (bad) badHistories.push(bad);
      const { id } = promptOf(messages);
      byId.set(id, (byId.get(id) ?? 0) + 1);
      const known = asked.get(signature) ?? { prefix, last: ids.slice(-3), answeredAt: Infinity };
      asked.set(signature, known);
      const sign = () => {
        known.answeredAt = Math.min(known.answeredAt, performance.now());
        return signature;
      };
      void held.then(() => answer(response, body, bad, script, sign));
    });
  });
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    badHistories,
    asked,
    requests: (id) => (id === undefined ? requests : (byId.get(id) ?? 0)),
    hold() {
      const { promise, resolve } = Promise.withResolvers<void>();
      held = promise;
      return resolve;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function findBadHistory(messages: Message[]): string | undefined {
  let open = new Set<string>();
  for (const [position, message] of messages.entries()) {
    if (message.role === 'tool') {
      if (!open.delete(message.tool_call_id ?? '')) return `message ${position} answers no open call`;
      continue;
    }
    if (open.size > 0)
      return `message ${position} (${message.role}) comes before the answer of ${[...open].join(', ')}`;
    open = new Set(message.tool_calls?.map(({ id }) => id));
  }
  return open.size > 0 ? `the last call has no answer: ${[...open].join(', ')}` : undefined;
}

const textOf = ({ content }: Message): string =>
  typeof content === 'string' ? content : (content ?? []).map(({ text = '' }) => text).join(' ');

const idsOf = (messages: Message[]): string[] =>
  messages.filter(({ role }) => role === 'user').flatMap((message) => idsIn(textOf(message)));

/** Results of tools behind the last message of a user. */
const countResults = (messages: Message[]): number => {
  const last = messages.findLastIndex((message) => idsOf([message]).length > 0);
  return messages.slice(last + 1).filter(({ role }) => role === 'tool').length;
};

function promptOf(messages: Message[]): { id: string; calls: number; delayMs: number } {
  const texts = messages.filter(({ role }) => role === 'user').map(textOf);
  const [, id = 'none', calls, delayMs] =
    texts.flatMap((text) => [...text.matchAll(/#id=(\S+) #calls=(\d+) #delay=(\d+)/g)]).at(-1) ?? [];
  return { id, calls: Number(calls ?? 0), delayMs: Number(delayMs ?? 0) };
}

/** As many calls as the last prompt says, one after the other, then its answer. */
function asPrompted(messages: Message[], { id, calls }: { id: string; calls: number }): string | ScriptedCall[] {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  const done = messages.slice(last + 1).filter(({ role }) => role === 'tool').length;
  const all = callsOf(id);
  const call = done < calls ? all[done % all.length] : undefined;
  return call ? [call] : answerFor(id);
}

async function answer(
  response: ServerResponse,
  asked: Asked,
  bad: string | undefined,
  script: Script,
  sign: () => string,
): Promise<void> {
  const { messages } = asked;
  const prompt = promptOf(messages);
  await sleep(prompt.delayMs);
  if (bad) {
    response.writeHead(400, { 'content-type': 'application/json' });
    return void response.end(JSON.stringify({ error: { message: bad, type: 'invalid_request_error' } }));
  }
  const said = script(messages, prompt);
  const done = messages.filter(({ role }) => role === 'tool').length;
  const chunks = typeof said === 'string' ? textChunks(said) : callChunks(said, `call_${done}`);
  const model = sign();
  sendChat(
    response,
    asked,
    chunks.map((chunk) => ({ ...chunk, model })),
  );
}

const chunkOf = (delta: object, finish: string | null = null) => ({
  id: 'c1',
  object: 'chat.completion.chunk',
  created: 1,
  choices: [{ index: 0, delta, finish_reason: finish }],
});

const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };

const textChunks = (text: string) => [
  chunkOf({ role: 'assistant', content: text }),
  { ...chunkOf({}, 'stop'), usage: USAGE },
];

const callChunks = (calls: ScriptedCall[], id: string) => [
  chunkOf({
    role: 'assistant',
    tool_calls: calls.map(({ name, arguments: args }, index) => ({
      index,
      id: `${id}_${index}`,
      type: 'function',
      function: { name, arguments: JSON.stringify(args) },
    })),
  }),
  { ...chunkOf({}, 'tool_calls'), usage: USAGE },
];
