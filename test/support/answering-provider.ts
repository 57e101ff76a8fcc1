import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sendChat } from './chat-wire.ts';
import { expectNoneRefused } from './fake-provider.ts';
import { findRefusal, type Refusal, toRefusalAnswer } from './provider-checks.ts';

/** A request as a model sees it. */
export interface Asked {
  model: string;
  system: string;
  /** What the user said last. */
  prompt: string;
  /** Results of tools since then, as texts. */
  results: string[];
  /** Names of the tools, sorted. */
  tools: string[];
  /** All messages behind the system prompt, as the wire has them. */
  messages: { role: string; content?: unknown; tool_calls?: unknown }[];
  body: Record<string, unknown>;
  headers: IncomingHttpHeaders;
}

/** What it answers: a text, or calls of tools, or an HTTP error. */
export type Reply = string | { calls: [name: string, args: object][] } | { status: number; error?: object };

export interface AnsweringProvider {
  baseUrl: string;
  asked: Asked[];
  close: () => Promise<void>;
}

/** Tokens of every answer. */
const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const CHUNK = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'answering' };

/**
 * A server on loopback that speaks the OpenAI wire and answers by a rule, so that many invocations can talk to it at
 * once; `usage` is what an answer used. Each connection serves one request: what stays open is not the provider's.
 * What real providers refuse is refused.
 */
export async function startAnsweringProvider(
  reply: (asked: Asked) => Reply,
  usage: typeof USAGE | ((asked: Asked) => typeof USAGE) = USAGE,
): Promise<AnsweringProvider> {
  const asked: Asked[] = [];
  const refused: Refusal[] = [];
  let calls = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      const refusal = findRefusal('openai-compatible', text);
      if (refusal) {
        refused.push(refusal);
        const { status, contentType, body } = toRefusalAnswer('openai-compatible', refusal);
        response.writeHead(status, { 'content-type': contentType, connection: 'close' }).end(body);
        return;
      }
      const one = {
        ...toAsked(JSON.parse(text) as Record<string, unknown>),
        headers: request.headers,
      };
      asked.push(one);
      const used = typeof usage === 'function' ? usage(one) : usage;
      // Ids have one length, so that the prompts of two runs have one size.
      send(response, one.body, reply(one), () => `call-${String((calls += 1)).padStart(6, '0')}`, used);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    close: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      expectNoneRefused(refused);
    },
  };
}

function toAsked(body: Record<string, unknown>): Omit<Asked, 'headers'> {
  const all = body['messages'] as Asked['messages'];
  const [first, ...rest] = all;
  const messages = first?.role === 'system' ? rest : all;
  const last = messages.findLastIndex(({ role }) => role === 'user');
  const tools = (body['tools'] ?? []) as { function: { name: string } }[];
  return {
    model: String(body['model']),
    system: first?.role === 'system' ? String(first.content) : '',
    prompt: textOf(messages[last]?.content),
    results: messages.slice(last + 1).flatMap(({ role, content }) => (role === 'tool' ? [textOf(content)] : [])),
    tools: tools.map((tool) => tool.function.name).sort(),
    messages,
    body,
  };
}

const textOf = (content: unknown) => (typeof content === 'string' ? content : JSON.stringify(content));

function send(
  response: ServerResponse,
  body: Record<string, unknown>,
  reply: Reply,
  newId: () => string,
  usage: typeof USAGE,
): void {
  if (typeof reply !== 'string' && 'status' in reply) {
    response.writeHead(reply.status, { 'content-type': 'application/json', connection: 'close' });
    const { error = { message: 'no', type: 'some_error', code: 'some_code' } } = reply;
    response.end(JSON.stringify({ error }));
    return;
  }
  const delta =
    typeof reply === 'string'
      ? { role: 'assistant', content: reply }
      : {
          tool_calls: reply.calls.map(([name, args], index) => ({
            index,
            id: newId(),
            type: 'function',
            function: { name, arguments: JSON.stringify(args) },
          })),
        };
  const finish = typeof reply === 'string' ? 'stop' : 'tool_calls';
  const chunk = (each: object, reason: string | null) => ({
    ...CHUNK,
    choices: [{ index: 0, delta: each, finish_reason: reason }],
  });
  const chunks = [chunk(delta, null), chunk({}, finish), { ...CHUNK, choices: [], usage }];
  sendChat(response, body, chunks, { connection: 'close' });
}
