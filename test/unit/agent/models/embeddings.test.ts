import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { createModel } from '../../../../src/agent/models/create-model.ts';
import type { ProviderName } from '../../../../src/agent/providers/index.ts';

let close: (() => unknown) | undefined;
afterEach(() => close?.());

/** A provider that answers one request with this JSON. */
async function start(provider: ProviderName, status: number, body: unknown) {
  const asked: { path: string; body: unknown }[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      asked.push({ path: request.url ?? '', body: JSON.parse(Buffer.concat(chunks).toString()) as unknown });
      response.writeHead(status, { 'content-type': 'application/json', connection: 'close' });
      response.end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  close = () => server.close();
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return { asked, model: createModel({ provider, apiKey: 'key', baseUrl }) };
}

const { signal } = new AbortController();
const VECTORS = [
  [1, 0],
  [0, 1],
];
const OPENAI = {
  object: 'list',
  data: VECTORS.map((embedding, index) => ({ object: 'embedding', index, embedding })),
  model: 'small',
  usage: { prompt_tokens: 7, total_tokens: 7 },
};

test.each<ProviderName>(['openai', 'openai-compatible'])('%s: texts go to /embeddings', async (provider) => {
  const { asked, model } = await start(provider, 200, OPENAI);
  const answer = await model.embed?.(['one', 'two'], { modelName: 'small', dimensions: 2, signal });
  expect(answer).toEqual({ vectors: VECTORS, tokens: 7 });
  const body = { model: 'small', input: ['one', 'two'], encoding_format: 'float', dimensions: 2 };
  expect(asked).toEqual([{ path: '/v1/embeddings', body }]);
});

test('google: texts go to batchEmbedContents, one alone to embedContent', async () => {
  const { asked, model } = await start('google', 200, { embeddings: VECTORS.map((values) => ({ values })) });
  const answer = await model.embed?.(['one', 'two'], { modelName: 'gemini-embedding-001', dimensions: 2, signal });
  expect(answer).toEqual({ vectors: VECTORS, tokens: undefined });
  const toRequest = (text: string) => ({
    model: 'models/gemini-embedding-001',
    content: { role: 'user', parts: [{ text }] },
    outputDimensionality: 2,
  });
  expect(asked).toEqual([
    {
      path: '/v1/models/gemini-embedding-001:batchEmbedContents',
      body: { requests: ['one', 'two'].map(toRequest) },
    },
  ]);
});

test('a refusal, a wrong number of vectors and no key are errors in plain words; Anthropic makes none', async () => {
  const refusing = await start('openai', 400, { error: { message: 'key-canary too long', code: 'too_long' } });
  const options = { modelName: 'small', signal };
  await expect(refusing.model.embed?.(['x'], options)).rejects.toMatchObject({
    code: 'model_rejected',
    message: 'The model `small` of openai refused the request. (HTTP 400, too_long)',
  });
  close?.();
  const short = await start('openai', 200, OPENAI);
  await expect(short.model.embed?.(['x'], options)).rejects.toMatchObject({ code: 'model_bad_response' });
  const keyless = createModel({ provider: 'openai' });
  await expect(keyless.embed?.(['x'], options)).rejects.toMatchObject({ code: 'model_unauthorized' });
  for (const provider of ['anthropic', 'offline'] as const) expect('embed' in createModel({ provider })).toBe(false);
});

test('an answer of more values than vectors of a batch have is refused', async () => {
  const { model } = await start('openai', 200, { ...OPENAI, more: Array.from({ length: 100_001 }, () => 0) });
  await expect(model.embed?.(['one', 'two'], { modelName: 'small', signal })).rejects.toMatchObject({
    code: 'model_bad_response',
  });
});
