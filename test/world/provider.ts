import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Model, ModelAnswer, ModelRequest } from '../../src/agent/definition/model.ts';
import { toOutputSchema } from '../../src/agent/definition/output-schema.ts';
import { createModel } from '../../src/agent/models/create-model.ts';
import { getParts, type Part } from '../../src/core/content.ts';
import { AgentError } from '../../src/core/errors.ts';
import { agent, runInput, runToEnd } from '../support/agent-fixtures.ts';
import { readBody } from '../support/edge.ts';
import type { Played, ProviderCase } from './case.ts';

/** What came of an answer, by the names of what must hold. */
type Found = { [Name in keyof ProviderCase['holds']]?: unknown } & {
  calls?: { id?: string | null | undefined; name?: string | null | undefined }[];
};

/** The ways in which the bytes of one answer may arrive; the last also from servers that stream unasked. */
const WAYS = ['whole', 'pieces', 'lines of CRLF', 'asked for whole'] as const;

/** Asks the model over each way; what it sends comes from the file. */
export async function playProvider(played: ProviderCase): Promise<Played> {
  const { holds } = played;
  // A value that stands in no file of this case is not looked at.
  const names = Object.keys(holds);
  const found: unknown[] = [];
  for (const way of WAYS) {
    const server = await startServer(played, way);
    try {
      const all = { ...(await ask(played, server.url, way === 'asked for whole')), requests: server.count() };
      const { calls = [] } = all;
      const named = calls.map(({ id, ...call }, place) =>
        holds.calls?.[place]?.id === undefined ? call : { ...call, id },
      );
      const shown: Record<string, unknown> = { ...all, calls: named };
      found.push({ way, ...Object.fromEntries(names.map((name) => [name, shown[name]])) });
    } finally {
      await server.close();
    }
  }
  return { found, holds: WAYS.map((way) => ({ way, ...holds })) };
}

async function ask({ protocol, outputSchema }: ProviderCase, url: string, asWhole: boolean): Promise<Found> {
  const model = createModel({
    provider: protocol,
    apiKey: 'key',
    baseUrl: url,
    maxRetries: 1,
    retryDelayMs: 1,
    timeoutMs: 20_000,
  });
  if (outputSchema) return askForOutput(model, outputSchema);
  let passedOver = 0;
  let partial = '';
  const request: ModelRequest = {
    modelName: 'm',
    instruction: 'Answer.',
    contents: [{ role: 'user', parts: [{ text: 'Hello' }] }],
    tools: [],
    sampling: {},
    signal: new AbortController().signal,
    asWhole,
    onPassedOver: () => void (passedOver += 1),
  };
  try {
    const stream = model.generate(request);
    for (;;) {
      const next = await stream.next();
      if (next.done) return { ...toFound(next.value), partial, passedOver };
      partial += textOf(getParts(next.value.content), false);
    }
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    return { errorCode: error.code, error: error.message, partial, passedOver };
  }
}

function toFound({ content, finishReason, usageMetadata, modelVersion }: ModelAnswer): Found {
  const parts = getParts(content);
  const signatures = parts.flatMap(({ thoughtSignature: text }) => {
    const [, data] = text ? (JSON.parse(Buffer.from(text, 'base64').toString()) as [string, object | null]) : [];
    return data ? [data] : [];
  });
  return {
    text: textOf(parts, false),
    thought: textOf(parts, true),
    calls: parts.flatMap(({ functionCall: call, partMetadata }) => {
      if (!call) return [];
      const invalid = partMetadata?.['invalidArguments'];
      const told = { name: call.name, args: JSON.stringify(call.args), ...(invalid !== undefined && { invalid }) };
      return [{ ...told, id: call.id }];
    }),
    signature: signatures[0],
    signatures,
    finishReason,
    modelVersion,
    usage: usageMetadata ?? null,
  };
}

const textOf = (parts: Part[], isThought: boolean): string =>
  parts.map(({ text, thought }) => ((thought === true) === isThought ? (text ?? '') : '')).join('');

async function askForOutput(model: Model, outputSchema: NonNullable<ProviderCase['outputSchema']>): Promise<Found> {
  const { end } = await runToEnd(runInput({ agent: agent({ model, outputSchema: toOutputSchema(outputSchema) }) }));
  const last = end.lastEvent;
  return {
    output: JSON.stringify(last?.output),
    text: textOf(getParts(last?.content), false),
    thought: textOf(getParts(last?.content), true),
    errorCode: end.error?.code,
  };
}

async function startServer({ answers }: ProviderCase, way: (typeof WAYS)[number]) {
  let requests = 0;
  const respond = async (request: IncomingMessage, response: ServerResponse) => {
    await readBody(request);
    const answer = answers[Math.min(requests, answers.length - 1)];
    requests += 1;
    const { status = 200, contentType = 'text/event-stream', headers = {}, body = '' } = answer ?? {};
    response.writeHead(status, { 'content-type': contentType, ...headers });
    const bytes = Buffer.from(way === 'lines of CRLF' ? body.replaceAll('\n', '\r\n') : body);
    const length = way === 'pieces' ? 7 : bytes.length;
    for (let at = 0; at < bytes.length; at += length) {
      response.write(bytes.subarray(at, at + length));
      if (way === 'pieces') await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  };
  const server = createServer((request, response) => void respond(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    count: () => requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
