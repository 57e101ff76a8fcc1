import { expect, test } from 'vitest';
import { createSecrets } from '../../../src/platform/secrets.ts';
import { readStoredRequest, toQueuedRequest } from '../../../src/invocations/request.ts';

const place = ['a', 'u', 's', 'e-1'];
const named = { key: { appName: 'a', userId: 'u', sessionId: 's' }, invocationId: 'e-1' };
const [old, fresh] = ['an old key of the operator', 'a new key of the operator'];
const server = { name: 'tools', url: 'https://tools.example/mcp', headers: { authorization: 'Bearer geheim' } };
const request = {
  ...named,
  content: undefined,
  overrides: { maxLlmCalls: 3, mcpServers: [server] },
  createSession: false,
  streaming: false,
};

test('what a key has encrypted each process reads that has the key, whichever is its first', () => {
  const sealed = createSecrets([old]).seal('geheim', place);
  expect(sealed).not.toContain('geheim');
  expect(createSecrets([fresh, old]).open(sealed, place)).toBe('geheim');
  expect(createSecrets([fresh]).open(sealed, place)).toBeUndefined();
  expect(createSecrets([old]).open(createSecrets([fresh, old]).seal('geheim', place), place)).toBeUndefined();
  expect(createSecrets([old]).seal('geheim', place)).not.toBe(sealed);
});

test('what was changed, cut off or moved to another invocation is not read', () => {
  const secrets = createSecrets([old]);
  const sealed = secrets.seal('geheim', place);
  const [id = '', text = ''] = sealed.split('.');
  const bytes = Buffer.from(text, 'base64url');
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  for (const wrong of [`${id}.${bytes.toString('base64url')}`, id, `${id}.`, '', sealed.slice(0, 40)])
    expect(secrets.open(wrong, place)).toBeUndefined();
  expect(secrets.open(sealed, ['a', 'u', 's', 'e-2'])).toBeUndefined();
  expect(secrets.open(sealed, ['a', 'v', 's', 'e-1'])).toBeUndefined();
});

test('a request with credentials is stored encrypted or not at all, and read with a reason or whole', () => {
  expect(toQueuedRequest(request, createSecrets([]))).toBeUndefined();
  const stored: unknown = JSON.parse(JSON.stringify(toQueuedRequest(request, createSecrets([old]))));
  expect(JSON.stringify(stored)).not.toMatch(/geheim|tools/);
  expect(readStoredRequest(stored, createSecrets([fresh, old]), named)).toMatchObject({
    request: { overrides: request.overrides },
    refusal: undefined,
  });
  const { request: read, refusal } = readStoredRequest(stored, createSecrets([fresh]), named);
  expect(refusal).toBe('its MCP servers have credentials, which no key of RUNTIME_SECRET_KEY decrypts');
  expect(read.overrides).toEqual({ maxLlmCalls: 3 });
});
