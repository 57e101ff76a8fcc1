import { once } from 'node:events';
import type { Command } from 'commander';
import { processEnvironment } from '../config/environment.ts';
import { type GlobalOptions, readFrames, readRefusal, toReason, toTarget, withApi } from './api.ts';

/** Longest line that is read, characters, and most messages under way. */
const MAX_LINE = 16_777_216;
const MAX_UNDER_WAY = 100;
const VERSION_KEY = 'io.modelcontextprotocol/protocolVersion';
/** Codes of JSON-RPC. */
const PARSE_ERROR = -32_700;
const INTERNAL_ERROR = -32_603;

interface Message {
  id?: string | number | null;
  method?: string;
  params?: {
    name?: string;
    uri?: string;
    taskId?: string;
    requestId?: string | number;
    _meta?: Record<string, unknown>;
  };
  result?: { protocolVersion?: string };
}

/**
 * Hands the messages of a client on standard input to the MCP door of a service, and what comes back to standard
 * output. A fault of the service is the answer to its message; the command ends with its input.
 */
export async function bridgeMcp(options: GlobalOptions, command: Command): Promise<void> {
  const isGiven = (name: string) => command.getOptionValueSourceWithGlobals(name) === 'cli';
  const { app, user } = options;
  const path = isGiven('app') ? `/mcp/${encodeURIComponent(app)}` : '/mcp';
  const query = isGiven('user') ? `?user_id=${encodeURIComponent(user)}` : '';
  const bridge = (url: string) => new Bridge(new URL(toTarget(url, path).href + query)).run();
  await (options.url === undefined
    ? withApi(options, ({ url }) => bridge(url), { running: true })
    : bridge(options.url));
}

class Bridge {
  readonly #target: URL;
  readonly #underWay = new Map<AbortController, Message['id']>();
  readonly #works = new Set<Promise<void>>();
  /** The version that an era before 2026 has agreed on. */
  #version: string | undefined;

  constructor(target: URL) {
    this.#target = target;
  }

  async run(): Promise<void> {
    for await (const line of readLines(process.stdin)) {
      const message = line === undefined ? undefined : toMessage(line);
      if (message) await this.#take(message);
      else await write(toError(undefined, `A line is no message, or has over ${MAX_LINE} characters.`, PARSE_ERROR));
    }
    await Promise.all(this.#works);
  }

  async #take(message: Message): Promise<void> {
    if (message.method === 'notifications/cancelled') {
      // In 2026 leaving is what cancels; before that the service could not tell which message is meant.
      for (const [gone, id] of this.#underWay) if (id === message.params?.requestId) gone.abort();
      return;
    }
    if (this.#works.size >= MAX_UNDER_WAY)
      return write(toError(message.id, `${MAX_UNDER_WAY} messages are under way: try again when one has ended.`));
    const gone = new AbortController();
    this.#underWay.set(gone, message.id);
    const work = this.#send(message, gone.signal)
      .catch((error: unknown) => {
        const why = `${this.#target.origin} cannot be reached: ${toReason(error)}.`;
        return gone.signal.aborted || message.id === undefined ? undefined : write(toError(message.id, why));
      })
      .finally(() => {
        this.#underWay.delete(gone);
        this.#works.delete(work);
      });
    this.#works.add(work);
  }

  async #send(message: Message, signal: AbortSignal): Promise<void> {
    const headers = this.#toHeaders(message);
    const response = await fetch(this.#target, { method: 'POST', headers, body: JSON.stringify(message), signal });
    const type = response.headers.get('content-type') ?? '';
    let isAnswered = message.id === undefined;
    const pass = async (answer: Message) => {
      isAnswered ||= answer.id === message.id;
      if (message.method === 'initialize') this.#version ??= answer.result?.protocolVersion;
      await write(answer);
    };
    if (type.startsWith('text/event-stream'))
      for await (const frame of readFrames<Message>(response)) await pass(frame);
    else if (response.status !== 202) {
      const text = await response.text();
      const answer = toMessage(text);
      if (answer && 'jsonrpc' in answer) await pass({ ...answer, ...(answer.id == null ? { id: message.id } : {}) });
      else if (!isAnswered) await pass(toError(message.id, await readRefusal(new Response(text, response), getKey())));
    }
    if (!isAnswered) await write(toError(message.id, 'The service ended its answer too early.'));
  }

  #toHeaders({ method, params }: Message): Record<string, string> {
    const key = getKey();
    const modern = params?._meta?.[VERSION_KEY];
    const version = modern ?? this.#version;
    const name = params?.name ?? params?.uri ?? params?.taskId;
    return {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(typeof version === 'string' ? { 'mcp-protocol-version': toHeader(version) } : {}),
      ...(modern !== undefined && typeof method === 'string' ? { 'mcp-method': toHeader(method) } : {}),
      ...(modern !== undefined && typeof name === 'string' ? { 'mcp-name': toHeader(name) } : {}),
    };
  }
}

const getKey = () => processEnvironment()['AGENT_RUNTIME_KEY'];

/** Writes a text so that a header can hold it, as the protocol says. */
const toHeader = (text: string): string =>
  /^[!-~](?:[ -~]*[!-~])?$/.test(text) && !text.startsWith('=?')
    ? text
    : `=?base64?${Buffer.from(text).toString('base64')}?=`;

const toError = (id: Message['id'], message: string, code = INTERNAL_ERROR) => ({
  jsonrpc: '2.0',
  id: id ?? null,
  error: { code, message },
});

/** Writes a message, no faster than it is read. */
async function write(message: object): Promise<void> {
  if (!process.stdout.write(`${JSON.stringify(message)}\n`)) await once(process.stdout, 'drain');
}

function toMessage(line: string): Message | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Yields the lines of a stream that are not empty; `undefined` for one that is too long. */
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
