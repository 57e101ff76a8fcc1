import { KeyObject, constants, createHmac, sign as signBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT, exportSPKI } from 'jose';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { mayActFor } from '../../src/platform/http/access/authorize.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { ANONYMOUS, FULL_KEY } from '../../src/platform/http/operation/principal.ts';
import { type Sent, type StartedEdge, startEdge } from '../support/edge.ts';
import { sampleOperations } from '../support/edge-operations.ts';
import { type Issuer, MOVED_PATH, type SigningKey, signingKey, startIssuer } from '../support/issuer.ts';

const SESSIONS = '/apps/a/users/alice/sessions';
const REFUSED = '{"detail":"authentication required"}';

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** Starts an edge for the tests of a `describe`. */
function testEdge(options: Parameters<typeof startEdge>[0] | (() => Parameters<typeof startEdge>[0])): StartedEdge {
  let edge: StartedEdge | undefined;
  beforeAll(async () => {
    edge = await startEdge(typeof options === 'function' ? options() : options);
  });
  afterAll(() => edge?.close());
  return new Proxy({} as StartedEdge, { get: (_, name) => edge?.[name as keyof StartedEdge] });
}

describe('local mode', () => {
  const edge = testEdge({ operations: sampleOperations, auth: { mode: 'local' } });

  it.each<Record<string, string>>([{}, bearer('wrong'), { authorization: 'Basic x' }, { authorization: 'Bearer' }])(
    'takes %j for anonymous: nothing could check it',
    async (headers) => {
      const { status, text } = await edge.send({ path: SESSIONS, headers });
      expect([status, JSON.parse(text)]).toMatchObject([200, { principal: { kind: 'anonymous' } }]);
    },
  );
});

describe('key mode', () => {
  const edge = testEdge({
    operations: sampleOperations,
    auth: { mode: 'key', keys: { plain: ['old-key', 'new-key_1.2~3+/=='] } },
  });

  it.each(['old-key', 'new-key_1.2~3+/=='])('takes %s, while both are valid', async (key) => {
    for (const scheme of ['Bearer', 'bearer', 'BEARER  ']) {
      const { status, text } = await edge.send({ path: SESSIONS, headers: { authorization: `${scheme} ${key}` } });
      expect([status, JSON.parse(text)]).toMatchObject([200, { principal: { kind: 'key' } }]);
    }
  });

  it.each<[string, Record<string, string>]>([
    ['nothing', {}],
    ['an empty header', { authorization: '' }],
    ['no token', { authorization: 'Bearer ' }],
    ['a prefix', bearer('old-ke')],
    ['one character more', bearer('old-key1')],
    ['another case', bearer('OLD-KEY')],
    ['both keys', bearer('old-key,new-key')],
    ['two tokens', bearer('old-key old-key')],
    ['another scheme', { authorization: 'Basic old-key' }],
    ['the scheme inside', { authorization: 'X-Bearer old-key' }],
    ['the bare key', { authorization: 'old-key' }],
    ['another header', { 'x-api-key': 'old-key' }],
    ['a model provider’s key', bearer('sk-proj-abc')],
    ['10,000 characters', bearer('x'.repeat(10_000))],
  ])('refuses %s with the same bytes', async (_what, headers) => {
    const answer = await edge.send({ path: SESSIONS, headers });
    expect([answer.status, answer.text]).toEqual([401, REFUSED]);
    // RFC 6750, 3.1: no error where no token came.
    const challenge = /^bearer ./i.test(headers['authorization'] ?? '') ? 'Bearer error="invalid_token"' : 'Bearer';
    expect(answer.headers).toMatchObject({ 'www-authenticate': challenge, 'content-type': 'application/json' });
  });

  it('keeps open operations, the document and its page open, and unknown paths 404', async () => {
    for (const path of ['/health', '/openapi.json', '/docs']) expect((await edge.send({ path })).status).toBe(200);
    expect((await edge.send({ path: '/nope' })).status).toBe(404);
  });

  it.each<[string, Partial<Sent>]>([
    ['malformed', { body: '{"a', headers: { 'content-type': 'application/json' } }],
    ['too large', { body: 'x'.repeat(2_000_000), headers: { 'content-type': 'application/json' } }],
    ['of a wrong type', { body: 'x', headers: { 'content-type': 'text/plain' } }],
    ['wrong', { body: {} }],
  ])('looks at the credential before a body that is %s', async (_what, sent) => {
    const answer = await edge.send({ method: 'POST', path: '/sample', ...sent });
    expect([answer.status, answer.text]).toEqual([401, REFUSED]);
  });

  it('looks at the credential before the path', async () => {
    expect((await edge.send({ path: '/apps/%00/users/u/sessions' })).status).toBe(401);
  });
});

describe('jwt mode', () => {
  let issuer: Issuer;
  let key: SigningKey;
  let second: SigningKey;
  let stranger: SigningKey;
  let elliptic: SigningKey;
  beforeAll(async () => {
    key = await signingKey('RS256', 'one');
    second = await signingKey('RS256', 'two');
    stranger = await signingKey('RS256', 'one');
    elliptic = await signingKey('ES256', 'three');
    issuer = await startIssuer([{ ...key.jwk, alg: 'RS256' }, second.jwk, elliptic.jwk]);
  });
  afterAll(() => issuer.close());
  const edge = testEdge(() => ({
    operations: sampleOperations,
    auth: { mode: 'jwt', issuers: [{ issuer: issuer.url, audience: 'runtime', userClaim: 'sub' }] },
  }));

  const seconds = () => Math.floor(Date.now() / 1000);
  const good = () => ({ iss: issuer.url, aud: 'runtime', sub: 'alice', iat: seconds(), exp: seconds() + 300 });
  const sign = (claims: object, header: object = {}, signer: SigningKey = key) =>
    new SignJWT({ ...claims }).setProtectedHeader({ alg: 'RS256', kid: 'one', ...header }).sign(signer.privateKey);
  const without = (name: string) => Object.fromEntries(Object.entries(good()).filter(([claim]) => claim !== name));
  const segment = (value: unknown) =>
    Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
  const hmac = (header: object, secret: string) => {
    const signed = `${segment(header)}.${segment(good())}`;
    return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
  };

  /** A token signed by the issuer's first key, whatever its header and payload say. */
  const signRaw = (header: object, payload: string, padding: number = constants.RSA_PKCS1_PADDING) => {
    const signed = `${segment(header)}.${payload}`;
    const salt = padding === constants.RSA_PKCS1_PSS_PADDING ? { saltLength: 32 } : {};
    const signer = { key: KeyObject.from(key.privateKey), padding, ...salt };
    return `${signed}.${signBytes('sha256', Buffer.from(signed), signer).toString('base64url')}`;
  };
  const first = { alg: 'RS256', kid: 'one' };

  const accepted: [string, () => Promise<string> | string][] = [
    ['a good token', () => sign(good())],
    ['the second key', () => sign(good(), { kid: 'two' }, second)],
    ['an elliptic key', () => sign(good(), { alg: 'ES256', kid: 'three' }, elliptic)],
    ['no kid, where one key fits', () => sign(good(), { alg: 'ES256', kid: undefined }, elliptic)],
    ['typ JWT', () => sign(good(), { typ: 'JWT' })],
    ['typ at+jwt', () => sign(good(), { typ: 'at+jwt' })],
    ['several audiences', () => sign({ ...good(), aud: ['other', 'runtime'] })],
    ['exp 20 seconds ago', () => sign({ ...good(), exp: seconds() - 20 })],
    ['nbf in 20 seconds', () => sign({ ...good(), nbf: seconds() + 20 })],
    ['no iat', () => sign(without('iat'))],
    [
      'jku and jwk of a stranger, signed by us',
      () => sign(good(), { jku: 'https://evil.example/keys', jwk: stranger.jwk }),
    ],
    ['a raw signature of the first key, which proves the raw ones below', () => signRaw(first, segment(good()))],
    [
      'a claim that stands twice, by its last value',
      () => signRaw(first, segment(`{"sub":"bob",${JSON.stringify(good()).slice(1)}`)),
    ],
    ['claims nobody knows', () => sign({ ...good(), scope: 'x', admin: true })],
  ];
  it.each(accepted)('takes %s', async (_what, token) => {
    const { status, text } = await edge.send({ path: SESSIONS, headers: bearer(await token()) });
    expect([status, JSON.parse(text)]).toMatchObject([200, { principal: { kind: 'user', userId: 'alice' } }]);
  });

  const tampered = async (change: (parts: string[]) => string[]) => change((await sign(good())).split('.')).join('.');
  const refused: [string, () => Promise<string> | string][] = [
    ['no token', () => ''],
    ['a runtime key', () => 'some-key'],
    ['alg none', () => `${segment({ alg: 'none' })}.${segment(good())}.`],
    ['alg NoNe with a signature', () => `${segment({ alg: 'NoNe' })}.${segment(good())}.${segment('x')}`],
    [
      'HS256 with the public key as its secret',
      async () => hmac({ alg: 'HS256', kid: 'one' }, await exportSPKI(key.publicKey)),
    ],
    ['HS256 with the modulus as its secret', () => hmac({ alg: 'HS256', kid: 'one' }, key.jwk.n ?? '')],
    ['HS256 with no secret', () => hmac({ alg: 'HS256', kid: 'one' }, ' ')],
    [
      'PS256 where the key says RS256',
      () => signRaw({ alg: 'PS256', kid: 'one' }, segment(good()), constants.RSA_PKCS1_PSS_PADDING),
    ],
    ['a stranger’s key under a known kid', () => sign(good(), {}, stranger)],
    ['a stranger’s key with its jwk embedded', () => sign(good(), { jwk: stranger.jwk }, stranger)],
    ['a stranger’s key with a jku', () => sign(good(), { jku: `${issuer.url}/keys`, kid: 'x' }, stranger)],
    ['an unknown kid', () => sign(good(), { kid: 'nobody' })],
    ['kid ../', () => sign(good(), { kid: '../../../../dev/null' })],
    ['kid with SQL', () => sign(good(), { kid: "one' or '1'='1" })],
    ['kid as a URL', () => sign(good(), { kid: 'https://evil.example/key' })],
    ['no kid with several keys that fit', () => sign(good(), { kid: undefined })],
    ['another issuer', () => sign({ ...good(), iss: 'https://evil.example' })],
    ['the issuer with a slash more', () => sign({ ...good(), iss: `${issuer.url}/` })],
    ['no issuer', () => sign(without('iss'))],
    ['another audience', () => sign({ ...good(), aud: 'other' })],
    ['several other audiences', () => sign({ ...good(), aud: ['a', 'b'] })],
    ['no audience', () => sign(without('aud'))],
    ['exp 40 seconds ago', () => sign({ ...good(), exp: seconds() - 40 })],
    ['no exp', () => sign(without('exp'))],
    ['exp as text', () => sign({ ...good(), exp: '9999999999' as never })],
    ['nbf in two minutes', () => sign({ ...good(), nbf: seconds() + 120 })],
    ['iat in two minutes', () => sign({ ...good(), iat: seconds() + 120 })],
    ['no sub', () => sign(without('sub'))],
    ['an empty sub', () => sign({ ...good(), sub: '' })],
    ['a sub that is no text', () => sign({ ...good(), sub: 5 as never })],
    ['a sub that no identifier may be: a control character', () => sign({ ...good(), sub: 'a\0b' })],
    ['the store’s escape mark in it', () => sign({ ...good(), sub: 'a\ue0000041' })],
    ['half a surrogate pair in it', () => sign({ ...good(), sub: '\ud800' })],
    ['a sub of 257 characters', () => sign({ ...good(), sub: 'a'.repeat(257) })],
    ['a sub of 514 bytes', () => sign({ ...good(), sub: 'ü'.repeat(257) })],
    ['a logout token', () => sign(good(), { typ: 'logout+jwt' })],
    ['a DPoP proof', () => sign(good(), { typ: 'dpop+jwt' })],
    ['an unknown critical header', () => signRaw({ ...first, crit: ['x'], x: 1 }, segment(good()))],
    ['an empty list of critical headers', () => signRaw({ ...first, crit: [] }, segment(good()))],
    ['an unencoded payload', () => signRaw({ ...first, b64: false, crit: ['b64'] }, segment(good()))],
    ['claims that are a list', () => signRaw(first, segment([good()]))],
    ['claims that are no JSON', () => signRaw(first, segment('{'))],
    [
      'a changed user',
      () => tampered(([head, , signature]) => [head ?? '', segment({ ...good(), sub: 'bob' }), signature ?? '']),
    ],
    [
      'a changed header',
      () =>
        tampered(([, payload, signature]) => [segment({ alg: 'RS256', kid: 'two' }), payload ?? '', signature ?? '']),
    ],
    ['no signature', () => tampered(([head, payload]) => [head ?? '', payload ?? '', ''])],
    [
      'half a signature',
      () => tampered(([head, payload, signature]) => [head ?? '', payload ?? '', (signature ?? '').slice(0, 100)]),
    ],
    ['four parts', () => tampered((parts) => [...parts, 'x'])],
    ['five parts, as encrypted ones', () => tampered((parts) => [...parts, 'x', 'y'])],
    ['a payload that is no JSON', () => tampered(([head, , signature]) => [head ?? '', segment('x'), signature ?? ''])],
    [
      'a header that is no JSON',
      () => tampered(([, payload, signature]) => [segment('{'), payload ?? '', signature ?? '']),
    ],
    ['10,000 characters', () => sign({ ...good(), pad: 'x'.repeat(8000) })],
  ];
  it.each(refused)('refuses %s with the same bytes', async (what, token) => {
    const answer = await edge.send({ path: SESSIONS, headers: bearer(await token()) });
    expect([answer.status, answer.text]).toEqual([401, REFUSED]);
    expect(answer.headers['www-authenticate']).toBe(what === 'no token' ? 'Bearer' : 'Bearer error="invalid_token"');
  });

  it('lets Node refuse a header of 64 KiB', async () => {
    const answer = await edge.send({ path: SESSIONS, headers: bearer('x'.repeat(65_536)) });
    expect([answer.status, answer.text]).toEqual([431, '{"detail":"The request headers are too large."}']);
  });

  it('answers for a foreign user what it answers for nobody', async () => {
    const headers = bearer(await sign(good()));
    const at = (path: string) => edge.send({ path, headers });
    const foreign = await at('/apps/a/users/bob/sessions/s');
    expect([foreign.status, foreign.text]).toEqual([404, '{"detail":"Session not found"}']);
    const list = await at('/apps/a/users/bob/sessions');
    expect([list.status, list.text]).toEqual([404, '{"detail":"User not found: bob"}']);
    for (const spelling of ['Alice', 'alice%20', '%61lice2', 'alice%2F', 'bob%2F..%2Falice']) {
      expect((await at(`/apps/a/users/${spelling}/sessions`)).status).toBe(404);
    }
    expect((await at('/apps/a/users/%61lice/sessions')).status).toBe(200);
    const body = await edge.send({ method: 'POST', path: '/apps/a/users/bob/sessions', headers, body: { state: 5 } });
    expect(body.status).toBe(404);
  });
});

describe('keys beside tokens of several issuers', () => {
  const issuers = new Map<string, Issuer>();
  let key: SigningKey;
  let partnerKey: SigningKey;
  const secondKey = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"sub":"x"}').toString('base64url')}.s`;
  const dir = mkdtempSync(join(tmpdir(), 'agent-runtime-mixed-'));
  const file = join(dir, 'keys');
  const named = createKey({ id: 'alice', scopes: ['read'] });
  const bound = createKey({ id: 'bound', scopes: ['read'], users: ['bob'] });
  const dated = createKey({ id: 'dated', scopes: ['read'], expires: '2020-01-01T00:00:00Z' });
  const lines = [named, bound, dated].map(({ entry }) => entry).join('\n');
  beforeAll(async () => {
    writeFileSync(file, lines);
    // The same key id in both key sets.
    [key, partnerKey] = [await signingKey('ES256', 'one'), await signingKey('ES256', 'one')];
    issuers.set('ours', await startIssuer([key.jwk]));
    issuers.set('partner', await startIssuer([partnerKey.jwk]));
  });
  afterAll(async () => {
    for (const issuer of issuers.values()) await issuer.close();
  });
  const urlOf = (name: string) => issuers.get(name)?.url ?? '';
  const edge = testEdge(() => ({
    operations: sampleOperations,
    auth: {
      mode: 'key+jwt',
      keys: { plain: ['an-operators-key', secondKey], file },
      issuers: [
        { issuer: urlOf('ours'), audience: 'runtime', userClaim: 'sub', scopeClaim: 'scope', groupsClaim: 'groups' },
        {
          issuer: urlOf('partner'),
          audience: 'partners',
          userClaim: 'email',
          userPrefix: 'partner:',
          groupsClaim: 'groups',
          scopeClaim: 'scope',
          scopes: ['read', 'write'],
        },
      ],
    },
  }));
  const GOOD = { aud: 'runtime', sub: 'alice' };
  const PARTNER = { aud: 'partners', email: 'alice' };
  const sign = (issuer: string, claims: object, signer = issuer === 'ours' ? key : partnerKey) =>
    new SignJWT({ iss: urlOf(issuer), exp: Math.floor(Date.now() / 1000) + 300, ...claims })
      .setProtectedHeader({ alg: 'ES256', kid: 'one' })
      .sign(signer.privateKey);
  const hmac = async (claims: object) => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const signed = `${part({ alg: 'HS256', kid: 'one' })}.${part({ iss: urlOf('ours'), exp: 9_999_999_999, ...claims })}`;
    return `${signed}.${createHmac('sha256', await exportSPKI(key.publicKey))
      .update(signed)
      .digest('base64url')}`;
  };
  const ask = async (credential: string, user = 'alice') => {
    const { status, text } = await edge.send({ path: `/apps/a/users/${user}/sessions`, headers: bearer(credential) });
    return [status, (JSON.parse(text) as { principal?: unknown; detail?: unknown }).principal ?? text];
  };
  const user = (userId: string, more: object = {}) => [200, expect.objectContaining({ kind: 'user', userId, ...more })];

  it('takes each for what it is', async () => {
    expect(await ask('an-operators-key')).toEqual([200, expect.objectContaining({ kind: 'key' })]);
    expect(await ask(secondKey), 'a key with two dots').toEqual([200, expect.objectContaining({ kind: 'key' })]);
    expect(await ask(named.key)).toEqual([200, expect.objectContaining({ kind: 'key', id: 'alice' })]);
    expect(await ask(await sign('ours', GOOD))).toEqual(user('alice', { groups: [] }));
    expect(await ask(await sign('partner', PARTNER), 'partner:alice')).toEqual(user('partner:alice'));
  });

  it('keeps the users of one issuer from being those of another', async () => {
    expect(await ask(await sign('partner', PARTNER))).toEqual([404, '{"detail":"User not found: alice"}']);
    expect(await ask(await sign('ours', GOOD), 'partner:alice')).toEqual([
      404,
      '{"detail":"User not found: partner:alice"}',
    ]);
    expect(await ask(await sign('ours', { ...GOOD, sub: 'partner:alice' }), 'partner:alice')).toEqual([401, REFUSED]);
    const groups = ['staff', 'partner:staff', 'user'];
    expect(await ask(await sign('ours', { ...GOOD, groups }))).toEqual(user('alice', { groups: ['staff', 'user'] }));
    const theirs = await sign('partner', { ...PARTNER, groups });
    expect(await ask(theirs, 'partner:alice')).toEqual(
      user('partner:alice', { groups: ['partner:staff', 'partner:partner:staff', 'partner:user'] }),
    );
  });

  it('gives the tokens of an issuer no more than the issuer may give', async () => {
    const scopesOf = async (credential: string, name: string) =>
      (await edge.send({ path: `/apps/a/users/${name}/sessions`, headers: bearer(credential) })).status;
    expect(await scopesOf(await sign('partner', { ...PARTNER, scope: 'read' }), 'partner:alice')).toBe(200);
    // None of these is one that a partner's token may have.
    expect(await scopesOf(await sign('partner', { ...PARTNER, scope: 'admin develop' }), 'partner:alice')).toBe(403);
    expect(await scopesOf(await sign('ours', { ...GOOD, scope: 'admin' }), 'alice')).toBe(403);
  });

  it.each<[string, () => Promise<string> | string]>([
    ['an unknown key', () => 'another-operators-key'],
    ['an expired key', () => dated.key],
    ['a key with the id of another', () => `alice${bound.key.slice('bound'.length)}`],
    ['another issuer’s token', () => sign('ours', { ...GOOD, iss: 'https://evil.example' })],
    ['a token signed by the other issuer, under the same key id', () => sign('ours', GOOD, partnerKey)],
    ['a token of the partner, signed by us', () => sign('partner', PARTNER, key)],
    ['the audience of the other issuer', () => sign('ours', { ...GOOD, aud: 'partners' })],
    ['the claim of the other issuer', () => sign('partner', { aud: 'partners', sub: 'alice' })],
    ['no issuer', () => sign('ours', { ...GOOD, iss: undefined })],
    ['an issuer that is no text', () => sign('ours', { ...GOOD, iss: [urlOf('ours')] })],
    ['an expired token', () => sign('ours', { ...GOOD, exp: 1 })],
    ['HS256 with the public key as its secret', () => hmac(GOOD)],
    [
      'alg none',
      async () => {
        const [, payload] = (await sign('ours', GOOD)).split('.');
        return `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`;
      },
    ],
    ['a token with a fourth part', async () => `${await sign('ours', GOOD)}.x`],
    ['a user for whom keys act where none is named', () => sign('ours', { ...GOOD, sub: 'user' })],
    ['a user for whom AgentKit’s clients act', () => sign('ours', { ...GOOD, sub: 'agentkit_user' })],
    ['a user for whom keys evaluate', () => sign('ours', { ...GOOD, sub: 'test_user_id' })],
    ['an empty name behind a prefix', () => sign('partner', { ...PARTNER, email: '' })],
    ['a name that is too long with its prefix', () => sign('partner', { ...PARTNER, email: 'a'.repeat(250) })],
  ])('refuses %s with the same bytes', async (_what, credential) => {
    const answer = await edge.send({ path: SESSIONS, headers: bearer(await credential()) });
    expect([answer.status, answer.text]).toEqual([401, REFUSED]);
    expect(answer.headers['www-authenticate']).toBe('Bearer error="invalid_token"');
  });

  it('refuses two credentials in one request', async () => {
    const both = [`Bearer ${await sign('ours', GOOD)}`, 'Bearer an-operators-key'];
    const answer = await edge.send({ path: SESSIONS, headers: { authorization: both } });
    expect(answer.status).toBe(400);
    expect(await ask(both.join(', '))).toEqual([401, REFUSED]);
  });

  it('lets users in while the file of keys cannot be read, and operators while an issuer is down', async () => {
    const token = await sign('ours', GOOD);
    rmSync(file);
    let now = performance.now() + 6_000;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    try {
      expect((await ask(named.key))[0]).toBe(503);
      expect(await ask(token)).toEqual(user('alice'));
      expect((await ask('an-operators-key'))[0]).toBe(200);
      writeFileSync(file, lines);
      now += 2_000;
      expect((await ask(named.key))[0]).toBe(200);
    } finally {
      clock.mockRestore();
    }
    const down = await startEdge({
      operations: sampleOperations,
      auth: {
        mode: 'key+jwt',
        keys: { plain: ['an-operators-key'] },
        issuers: [
          { issuer: 'http://127.0.0.1:9', userClaim: 'sub' },
          { issuer: urlOf('ours'), userClaim: 'sub', userPrefix: 'o:' },
        ],
      },
    });
    const statusOf = async (credential: string, name = 'alice') =>
      (await down.send({ path: `/apps/a/users/${name}/sessions`, headers: bearer(credential) })).status;
    expect(await statusOf('an-operators-key')).toBe(200);
    expect(await statusOf('another-operators-key')).toBe(401);
    expect(await statusOf(token, 'o:alice')).toBe(200);
    expect(await statusOf(await sign('ours', { ...GOOD, iss: 'http://127.0.0.1:9' }))).toBe(503);
    await down.close();
  });
});

describe('the keys of an issuer', () => {
  let issuer: Issuer;
  let key: SigningKey;
  const edges: StartedEdge[] = [];
  beforeEach(async () => {
    key = await signingKey('ES256', 'one');
    issuer = await startIssuer([key.jwk]);
    vi.useFakeTimers({ toFake: ['Date'] });
  });
  afterEach(async () => {
    vi.useRealTimers();
    for (const edge of edges.splice(0)) await edge.close();
    await issuer.close();
  });

  const start = async (options: { jwksUrl?: string; issuer?: string; timeoutMs?: number } = {}) => {
    const issuers = [{ issuer: issuer.url, userClaim: 'user_id', ...options }];
    const edge = await startEdge({ operations: sampleOperations, auth: { mode: 'jwt', issuers } });
    edges.push(edge);
    return edge;
  };
  const token = (signer = key, kid = 'one', name = issuer.url) =>
    new SignJWT({ user_id: 'alice' })
      .setProtectedHeader({ alg: 'ES256', kid })
      .setIssuer(name)
      .setExpirationTime('2h')
      .sign(signer.privateKey);
  const status = async (edge: StartedEdge, text: string) =>
    (await edge.send({ path: SESSIONS, headers: bearer(text) })).status;
  const seconds = (count: number) => vi.setSystemTime(Date.now() + count * 1000);
  const minutes = (count: number) => seconds(count * 60);

  it('come from the discovery document or from an address, once for all requests', async () => {
    for (const options of [{}, { jwksUrl: issuer.jwksUrl }]) {
      issuer.fetches = 0;
      const edge = await start(options);
      const text = await token();
      const statuses = await Promise.all(Array.from({ length: 20 }, () => status(edge, text)));
      expect([...new Set(statuses), issuer.fetches]).toEqual([200, 1]);
    }
  });

  it('are fetched again for an unknown key, and not for each of a flood of them', async () => {
    const edge = await start();
    const text = await token();
    expect(await status(edge, text)).toBe(200);
    const rotated = await signingKey('ES256', 'two');
    issuer.keys = [key.jwk, rotated.jwk];
    expect(await status(edge, await token(rotated, 'two'))).toBe(401);
    seconds(31);
    expect(await status(edge, await token(rotated, 'two'))).toBe(200);
    issuer.fetches = 0;
    for (let second = 0; second < 60; second++) {
      seconds(1);
      for (let kid = 0; kid < 5; kid++)
        expect(await status(edge, await token(rotated, `forged-${second}-${kid}`))).toBe(401);
    }
    expect(issuer.fetches).toBeLessThanOrEqual(3);
  });

  it('are refused ten minutes after they were removed', async () => {
    const edge = await start();
    const text = await token();
    expect(await status(edge, text)).toBe(200);
    issuer.keys = [(await signingKey('ES256', 'two')).jwk];
    minutes(11);
    expect(await status(edge, text)).toBe(401);
  });

  it('go on working while the issuer is down, for an hour', async () => {
    const edge = await start();
    const text = await token();
    expect(await status(edge, text)).toBe(200);
    issuer.broken = { status: 500, body: 'down' };
    minutes(11);
    issuer.fetches = 0;
    for (let count = 0; count < 20; count++) expect(await status(edge, text)).toBe(200);
    expect(issuer.fetches).toBe(1);
    minutes(40);
    expect(await status(edge, text)).toBe(200);
    minutes(20);
    expect(await status(edge, text)).toBe(503);
    issuer.broken = undefined;
    seconds(6);
    expect(await status(edge, text)).toBe(200);
  });

  it('that were never there make 503, with few fetches, until they come', async () => {
    issuer.broken = { status: 503, body: '' };
    const edge = await start({ jwksUrl: issuer.jwksUrl });
    const text = await token();
    for (let count = 0; count < 20; count++) {
      const answer = await edge.send({ path: SESSIONS, headers: bearer(text) });
      expect([answer.status, answer.text, answer.headers['retry-after']]).toEqual([
        503,
        '{"detail":"The keys to verify tokens with cannot be fetched for now."}',
        '1',
      ]);
    }
    expect(issuer.fetches).toBe(1);
    issuer.broken = undefined;
    seconds(6);
    expect(await status(edge, text)).toBe(200);
  });

  it('of an issuer that does not answer are not waited for', async () => {
    let open = () => {};
    issuer.gate = new Promise((resolve) => {
      open = resolve;
    });
    const edge = await start({ timeoutMs: 5 });
    expect(await status(edge, await token())).toBe(503);
    open();
  });

  it.each<[string, (issuer: Issuer) => object]>([
    ['a redirect', ({ url }) => ({ status: 302, body: '', headers: { location: `${url}${MOVED_PATH}` } })],
    ['no JSON', () => ({ status: 200, body: '<html>' })],
    ['no keys', () => ({ status: 200, body: '{}' })],
    ['a number', () => ({ status: 200, body: '5' })],
    ['300 KB', () => ({ status: 200, body: JSON.stringify({ keys: [], pad: 'x'.repeat(300_000) }) })],
  ])('are not taken from %s', async (_what, broken) => {
    issuer.broken = broken(issuer) as NonNullable<Issuer['broken']>;
    const edge = await start({ jwksUrl: issuer.jwksUrl });
    expect(await status(edge, await token())).toBe(503);
  });

  it('are not taken over plain http from elsewhere, or from another issuer’s discovery document', async () => {
    const remote = await start({ jwksUrl: 'http://keys.example/keys' });
    expect(await status(remote, await token())).toBe(503);
    const other = await start({ issuer: `${issuer.url}/tenant` });
    expect(await status(other, await token(key, 'one', `${issuer.url}/tenant`))).toBe(503);
    expect(issuer.fetches).toBe(0);
  });

  it('that are malformed make 401 and not 500', async () => {
    issuer.keys = [{ kty: 'EC', crv: 'P-256', kid: 'one', x: 'AA', y: 'AA' }];
    const edge = await start();
    expect(await status(edge, await token())).toBe(401);
  });
});

describe('mayActFor', () => {
  it('binds users of a pool to themselves', () => {
    expect(mayActFor(ANONYMOUS, 'bob')).toBe(true);
    expect(mayActFor(FULL_KEY, 'bob')).toBe(true);
    expect(mayActFor({ kind: 'user', userId: 'bob', scopes: new Set() }, 'bob')).toBe(true);
    expect(mayActFor({ kind: 'user', userId: 'alice', scopes: new Set() }, 'bob')).toBe(false);
  });
});

describe('web pages on the same machine', () => {
  const origins = {
    ownNamesOnly: true,
    allowedHosts: ['runtime.test:8443'],
    allowedOrigins: ['http://localhost:4200'],
  };
  const edge = testEdge({ operations: sampleOperations, origins });
  const ask = (headers: Record<string, string>, method = 'GET', path = SESSIONS) =>
    edge.send({ method, path, headers });

  it.each([
    'localhost',
    'LOCALHOST:8000',
    '127.0.0.1:1',
    '127.9.9.9',
    '[::1]:8000',
    'runtime.test:8443',
    'Runtime.Test:8443',
  ])('Host %s is ours', async (host) => {
    expect((await ask({ host })).status).toBe(200);
  });

  it.each([
    'evil.example',
    'evil.example:8000',
    '127.0.0.1.nip.io',
    'localhost.evil.example',
    'localhost.',
    'evil.example#localhost',
    'localhost@evil.example',
    'localhost:8000:80',
    'localhost:99999999',
    '0.0.0.0',
    '[::]',
    '[::ffff:127.0.0.1]',
    '2130706433',
    '128.0.0.1',
    'runtime.test',
  ])('Host %j is refused, for every method and path', async (host) => {
    for (const [method, path] of [
      ['GET', SESSIONS],
      ['POST', '/sample'],
      ['OPTIONS', '/sample'],
      ['GET', '/docs'],
      ['GET', '/nope'],
    ]) {
      const answer = await ask({ host }, method, path);
      expect([answer.status, answer.text]).toEqual([403, '{"detail":"Forbidden: host not allowed"}']);
    }
  });

  it.each([
    ['two Host headers', 'GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n'],
    ['two equal Host headers', 'GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n'],
    ['an empty Host', 'GET /health HTTP/1.1\r\nhost: \r\n'],
    ['no Host, as HTTP/1.0 may', 'GET /health HTTP/1.0\r\n'],
    ['an absolute URL', 'GET http://localhost/health HTTP/1.1\r\nhost: evil.example\r\n'],
  ])('refuses %s', async (_what, request) => {
    const answer = await edge.sendRaw(`${request}connection: close\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    expect(answer).toContain('{"detail":"Forbidden: host not allowed"}');
  });

  it.each([
    'http://evil.example',
    'null',
    'http://localhost:9999',
    'http://localhost',
    'https://localhost:4200',
    'file://',
    'http://localhost:4200.evil.example',
  ])('Origin %s is foreign', async (origin) => {
    for (const method of ['GET', 'POST', 'OPTIONS', 'DELETE']) {
      const answer = await ask({ host: 'localhost:8000', origin }, method);
      expect([answer.status, answer.text]).toEqual([403, '{"detail":"Forbidden: origin not allowed"}']);
      expect(answer.headers).not.toHaveProperty('access-control-allow-origin');
    }
  });

  it('takes its own origin without CORS, and an allowed one with it', async () => {
    const own = await ask({ host: 'localhost:8000', origin: 'http://localhost:8000' });
    expect(own.status).toBe(200);
    expect(own.headers).not.toHaveProperty('access-control-allow-origin');
    const allowed = await ask({ host: 'localhost:8000', origin: 'http://localhost:4200' });
    expect(allowed.status).toBe(200);
    expect(allowed.headers).toMatchObject({ 'access-control-allow-origin': 'http://localhost:4200', vary: 'Origin' });
    expect(allowed.headers).not.toHaveProperty('access-control-allow-credentials');
  });

  it('answers the preflight of an allowed origin', async () => {
    const { status, headers } = await ask(
      {
        host: 'localhost:8000',
        origin: 'http://localhost:4200',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization, content-type',
      },
      'OPTIONS',
      '/sample',
    );
    expect(status).toBe(204);
    expect(headers).toMatchObject({
      'access-control-allow-origin': 'http://localhost:4200',
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization, content-type',
    });
  });

  it.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])(
    'cannot be asked without a preflight: %s is no body for us',
    async (type) => {
      const headers = { host: 'localhost:8000', 'content-type': type };
      expect((await edge.send({ method: 'POST', path: '/sample', headers, body: '{"topK":1}' })).status).toBe(415);
    },
  );
});
