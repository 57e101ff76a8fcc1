import { once } from 'node:events';
import { type JSONRPCMessage, SdkHttpError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import type { Command } from 'commander';
import { processEnvironment } from '../config/environment.ts';
import { type GlobalOptions, readRefusal, toReason, toTarget, withApi } from './api.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** Maximum length of a message on standard input, in characters. */
const MAX_LINE = 16_777_216;
const MAX_UNDER_WAY = 100;
/** Error codes of JSON-RPC 2.0. */
const PARSE_ERROR = -32_700;
const INTERNAL_ERROR = -32_603;

interface Message {
  id?: string | number | null;
  method?: string;
  params?: { requestId?: string | number };
  result?: { protocolVersion?: string };
}

/**
 * A message to the service that has no response yet. `settle` is called without an argument if the client cancelled it.
 */
interface Waiting {
  id: Message['id'];
  gone: AbortController;
  settle: (answer?: Message) => void;
}

/**
 * Bridges standard input and output to the MCP endpoint until the input ends; a failed request gets a JSON-RPC error.
 */
export async function bridgeMcp(options: GlobalOptions, command: Command): Promise<void> {
  const isGiven = (name: string) => command.getOptionValueSourceWithGlobals(name) === 'cli';
  const { app, user } = options;
  const path = isGiven('app') ? `/mcp/${encodeURIComponent(app)}` : '/mcp';
  const query = isGiven('user') ? `?user_id=${encodeURIComponent(user)}` : '';
  const bridge = (url: string) => runBridge(new URL(toTarget(url, path).href + query));
  await (options.url === undefined
    ? withApi(options, ({ url }) => bridge(url), { running: true })
    : bridge(options.url));
}

async function runBridge(target: URL): Promise<void> {
  const key = processEnvironment()['AGENT_RUNTIME_KEY'];
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const service = new StreamableHTTPClientTransport(target, { requestInit: { headers } });
  const waiting = new Set<Waiting>();
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's transport is no EventTarget
  service.onmessage = (message) => {
    const waiter = 'method' in message ? undefined : [...waiting].find(({ id }) => id === message.id);
    if (waiter) waiter.settle(message as Message);
    else void write(message);
  };
  await service.start();
  const send = async (message: Message) => {
    const { id, method } = message;
    const { promise, resolve: settle } = Promise.withResolvers<Message | undefined>();
    const waiter = { id, gone: new AbortController(), settle };
    const requestSignal = waiter.gone.signal;
    const onRequestStreamEnd = () => settle(toError(id, 'The service ended its answer too early.'));
    waiting.add(waiter);
    try {
      await service.send(message as JSONRPCMessage, { requestSignal, onRequestStreamEnd });
    } catch (error) {
      settle(requestSignal.aborted ? undefined : await toAnswer(target, id, error, key));
    }
    const answer = id === undefined ? undefined : await promise;
    waiting.delete(waiter);
    const version = method === 'initialize' && answer?.result?.protocolVersion;
    if (version) service.setProtocolVersion(version);
    if (answer) await write(answer);
  };
  const works = new Set<Promise<void>>();
  for await (const line of readLines(process.stdin)) {
    const message = line === undefined ? undefined : toMessage(line);
    if (!message)
      await write(toError(undefined, `A line is no message, or has over ${MAX_LINE} characters.`, PARSE_ERROR));
    else if (message.method === 'notifications/cancelled') {
      // Since MCP 2026, aborting a call's HTTP request cancels the call. In earlier versions the service does not learn
      // which call is meant, so it goes on.
      for (const { id, gone, settle } of waiting) {
        if (id !== message.params?.requestId) continue;
        gone.abort();
        settle();
      }
    } else if (works.size >= MAX_UNDER_WAY)
      await write(toError(message.id, `${MAX_UNDER_WAY} messages are under way: try again when one has ended.`));
    else {
      const work = send(message).finally(() => works.delete(work));
      works.add(work);
    }
  }
  await Promise.all(works);
}

/** Returns the JSON-RPC error for a message that the service refused or that did not reach it. */
async function toAnswer({ origin }: URL, id: Message['id'], error: unknown, key: string | undefined): Promise<Message> {
  if (!(error instanceof SdkHttpError)) return toError(id, `${origin} cannot be reached: ${toReason(error)}.`);
  const { status, text } = error.data as { status: number; text: string };
  const answer = toMessage(text);
  if (answer && 'jsonrpc' in answer) return { ...answer, id: answer.id ?? id ?? null };
  return toError(id, await readRefusal(new Response(text, { status }), key));
}

const toError = (id: Message['id'], message: string, code = INTERNAL_ERROR) => ({
  jsonrpc: '2.0',
  id: id ?? null,
  error: { code, message },
});

/** Writes a message to standard output, and waits while the client does not read. */
async function write(message: object): Promise<void> {
  if (!process.stdout.write(`${JSON.stringify(message)}\n`)) await once(process.stdout, 'drain');
}

function toMessage(line: string): Message | undefined {
  try {
    const value: unknown = parseExactJson(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Yields the non-empty lines of a stream; `undefined` for a line that is longer than `MAX_LINE`. */
async function* readLines(input: NodeJS.ReadStream): AsyncGenerator<string | undefined> {
  let [text, isTooLong] = ['', false];
  for await (const chunk of input.setEncoding('utf8') as AsyncIterable<string>) {
    const [first = '', ...more] = chunk.split('\n');
    text += isTooLong ? '' : first;
    for (const next of more) {
      if (isTooLong) yield undefined;
      else if (text.trim() !== '') yield text;
      [text, isTooLong] = [next, false];
    }
    if (text.length > MAX_LINE) [text, isTooLong] = ['', true];
  }
  if (text.trim() !== '') yield text;
}
