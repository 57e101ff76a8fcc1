import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

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
  /** Requests so far. */
  requests(): number;
  /** Holds every answer back from now on, until what is returned is called. */
  hold(): () => void;
  close(): Promise<void>;
}

interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string | null | { text?: string }[];
  tool_calls?: { id: string }[];
  tool_call_id?: string;
}

/** A function call as this model makes it. */
interface ScriptedCall {
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
/** What the model answers in the end. */
export const answerFor = (id: string): string => `answer ${id}`;

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

/** Starts a model on loopback that speaks OpenAI's chat completions. */
export async function startModelServer(): Promise<ModelServer> {
  const badHistories: string[] = [];
  let requests = 0;
  let held = Promise.resolve();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      requests++;
      const { messages } = JSON.parse(Buffer.concat(chunks).toString()) as { messages: Message[] };
      const bad = findBadHistory(messages);
      if (bad) badHistories.push(bad);
      void held.then(() => answer(response, messages, bad));
    });
  });
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    badHistories,
    requests: () => requests,
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

async function answer(response: ServerResponse, messages: Message[], bad: string | undefined): Promise<void> {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  const text = last < 0 ? '' : textOf(messages[last] as Message);
  const [, id = 'none', calls, delayMs] = [...text.matchAll(/#id=(\S+) #calls=(\d+) #delay=(\d+)/g)].at(-1) ?? [];
  const done = messages.slice(last + 1).filter(({ role }) => role === 'tool').length;
  await sleep(Number(delayMs ?? 0));
  if (bad) {
    response.writeHead(400, { 'content-type': 'application/json' });
    return void response.end(JSON.stringify({ error: { message: bad, type: 'invalid_request_error' } }));
  }
  const all = callsOf(id);
  const call = done < Number(calls ?? 0) ? all[done % all.length] : undefined;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const chunk of call ? callChunks(call, `call_${done}`) : textChunks(answerFor(id))) {
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  }
  response.end('data: [DONE]\n\n');
}

const chunkOf = (delta: object, finish: string | null = null) => ({
  id: 'c1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'scripted',
  choices: [{ index: 0, delta, finish_reason: finish }],
});

const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };

const textChunks = (text: string): object[] => [
  chunkOf({ role: 'assistant', content: text }),
  { ...chunkOf({}, 'stop'), usage: USAGE },
];

const callChunks = (call: ScriptedCall, id: string): object[] => [
  chunkOf({
    role: 'assistant',
    tool_calls: [
      { index: 0, id, type: 'function', function: { name: call.name, arguments: JSON.stringify(call.arguments) } },
    ],
  }),
  { ...chunkOf({}, 'tool_calls'), usage: USAGE },
];
