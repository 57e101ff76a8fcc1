import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { configurationPage } from '../../../docs/configuration.ts';
import { readConfig } from '../../../src/process/config.ts';
import { ConfigError } from '../../../src/core/errors.ts';
import { listSettings } from '../../../src/config/config.ts';
import { features } from '../../../src/process/features.ts';

const KEY = '0123456789abcdef';
const ISSUED = { JWT_ISSUER: 'https://idp.example', JWT_AUDIENCE: 'a' };
const OURS = { issuer: 'https://idp.example', audience: 'a' };
const THEIRS = { issuer: 'https://partner.example', audience: 'a', userPrefix: 'partner:', scopes: ['read'] };
const listed = (...issuers: object[]) => ({ JWT_ISSUERS: JSON.stringify(issuers) });
/** A text that looks like a token of the issuer. */
const TOKEN = `eyJhbGciOiJub25lIn0.${Buffer.from('{"iss":"https://idp.example"}').toString('base64url')}.0123456789abcdef`;
const messageOf = (environment: Record<string, string>) => {
  try {
    readConfig(environment);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return undefined;
};

test('a variable that resembles a setting and is none is named, others are not', () => {
  const names = (environment: Record<string, string>) =>
    readConfig(environment).misspelt.map((sentence) => sentence.replace(/ is no setting .* mean (.*)\?$/, ' → $1'));
  expect(names({ RUNTIME_API_KEY: KEY, AUDT: 'writes', DATABASE_URI: '', LOGLEVEL: 'warn', dev_ui: 'true' })).toEqual([
    'RUNTIME_API_KEY → RUNTIME_API_KEYS',
    'AUDT → AUDIT',
    'LOGLEVEL → LOG_LEVEL',
    'dev_ui → DEV_UI',
  ]);
  const others =
    'OPENAI_API_KEY ANTHROPIC_API_KEY GOOGLE_API_KEY GEMINI_API_KEY AWS_REGION PGHOST PGPORT HOSTNAME HOME LANG TERM ' +
    'SHELL NODE_ENV OTEL_SERVICE_NAME POSTGRES_PASSWORD AGENT_RUNTIME_KEY AGENT_RUNTIME_URL IMPORT_KEY HTTP_PROXY';
  expect(names(Object.fromEntries(others.split(' ').map((name) => [name, 'x'])))).toEqual([]);
});

test('a setting that went is named with what holds now', () => {
  const former = {
    DATABASE_READ_URL: 'postgres://replica.example/agents',
    OTEL_SEMCONV_STABILITY_OPT_IN: 'gen_ai/dup',
    SWEEP_INTERVAL_MS: '1000',
  };
  expect(readConfig(former).misspelt).toEqual([
    'DATABASE_READ_URL is no setting any more and has no effect: reads go to DATABASE_URL.',
    'OTEL_SEMCONV_STABILITY_OPT_IN is no setting any more and has no effect: traces and metrics have the current names only.',
    'SWEEP_INTERVAL_MS is no setting any more and has no effect: it is a third of SESSION_LEASE_MS.',
  ]);
});

describe('modes', () => {
  test.each([
    [{}, { mode: 'local' }],
    [{ RUNTIME_API_KEYS: `${KEY} , ${KEY}2,` }, { mode: 'key', keys: { plain: [KEY, `${KEY}2`] } }],
    [
      { JWT_ISSUER: 'https://idp.example', JWT_AUDIENCE: 'a' },
      { mode: 'jwt', issuers: [{ issuer: 'https://idp.example', audience: 'a', userClaim: 'sub' }] },
    ],
    [
      { RUNTIME_API_KEYS_FILE: 'keys', JWT_ISSUER: 'https://idp.example', JWT_AUDIENCE: 'a', JWT_USER_CLAIM: 'email' },
      {
        mode: 'key+jwt',
        keys: { plain: [], file: 'keys' },
        issuers: [{ issuer: 'https://idp.example', audience: 'a', userClaim: 'email' }],
      },
    ],
    [
      { AUTH_MODE: 'key+jwt', RUNTIME_API_KEYS: KEY, JWT_ISSUERS: JSON.stringify([OURS, THEIRS]) },
      {
        mode: 'key+jwt',
        keys: { plain: [KEY] },
        issuers: [
          { ...OURS, userClaim: 'sub' },
          { ...THEIRS, userClaim: 'sub' },
        ],
      },
    ],
  ])('%j', (environment, auth) => {
    expect(readConfig(environment).auth).toEqual(auth);
  });
});

describe('a wrong value ends the start with a sentence', () => {
  test.each([
    [{ PORT: 'abc' }, 'PORT: found "abc"; allowed: a whole number from 0 to 65535.'],
    [{ PORT: '70000' }, 'PORT: found "70000"; allowed: a whole number from 0 to 65535.'],
    [{ DEV_UI: 'yes' }, 'DEV_UI: found "yes"; allowed: true or false.'],
    [
      { AUTH_MODE: 'open', PORT: '-1' },
      'PORT: found "-1"; allowed: a whole number from 0 to 65535.\nAUTH_MODE: found "open"; allowed: local, key, jwt, key+jwt.',
    ],
    [{ MODEL_BASE_URL: 'secret-host' }, 'MODEL_BASE_URL: found a wrong value; allowed: a URL.'],
    [{ AUTH_MODE: 'key' }, 'RUNTIME_API_KEYS: found nothing; AUTH_MODE key needs at least one key.'],
    [
      { RUNTIME_API_KEYS: 'short' },
      'RUNTIME_API_KEYS: found a key of fewer than 16 characters; make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: 'k'.repeat(64) },
      'RUNTIME_API_KEYS: found a key that can be guessed; make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: 'change-me-before-production' },
      'RUNTIME_API_KEYS: found a placeholder; make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: 'schlüssel-für-die-laufzeit' },
      'RUNTIME_API_KEYS: found a key with characters that no Authorization header can carry; ' +
        'make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, MODEL_API_KEY: KEY },
      'RUNTIME_API_KEYS: found the value of MODEL_API_KEY, which is a secret between this service and the provider; ' +
        'make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, ...ISSUED, AUTH_MODE: 'key' },
      'AUTH_MODE: found key, in which JWT_ISSUER would have no effect; unset AUTH_MODE, and it follows from what is ' +
        'set, or unset JWT_ISSUER.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, RUNTIME_API_KEYS_FILE: 'keys', ...ISSUED, AUTH_MODE: 'jwt' },
      'AUTH_MODE: found jwt, in which RUNTIME_API_KEYS and RUNTIME_API_KEYS_FILE would have no effect; unset ' +
        'AUTH_MODE, and it follows from what is set, or unset RUNTIME_API_KEYS and RUNTIME_API_KEYS_FILE.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, AUTH_MODE: 'local' },
      'AUTH_MODE: found local, in which RUNTIME_API_KEYS would have no effect; unset AUTH_MODE, and it follows from ' +
        'what is set, or unset RUNTIME_API_KEYS.',
    ],
    [{ ...ISSUED, AUTH_MODE: 'key+jwt' }, 'RUNTIME_API_KEYS: found nothing; AUTH_MODE key+jwt needs at least one key.'],
    [
      { RUNTIME_API_KEYS: KEY, AUTH_MODE: 'key+jwt' },
      'JWT_ISSUER: found nothing; AUTH_MODE key+jwt needs the URL of the issuer.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, JWT_AUDIENCE: 'a' },
      'JWT_AUDIENCE: found without JWT_ISSUER; set JWT_ISSUER, or unset JWT_AUDIENCE.',
    ],
    [
      { ...listed(OURS), ...ISSUED },
      'JWT_ISSUERS: found beside JWT_ISSUER; make that an entry of the list, and unset it.',
    ],
    [
      { ...listed(OURS), JWT_SCOPE_CLAIM: 'scope' },
      'JWT_SCOPE_CLAIM: found beside JWT_ISSUERS, whose entries say it for each issuer; unset it.',
    ],
    [
      { JWT_ISSUERS: 'https://idp.example' },
      'JWT_ISSUERS: found no list of issuers: Invalid input: expected array, received string.',
    ],
    [
      listed(OURS, { issuer: 'https://partner.example', userPrefix: 'p:' }),
      'JWT_ISSUERS: found no list of issuers at entry 2, audience: Invalid input: expected string, received undefined.',
    ],
    [
      listed({ ...OURS, prefix: 'p:' }),
      'JWT_ISSUERS: found no list of issuers at entry 1: Unrecognized key: "prefix".',
    ],
    [listed(OURS, { ...OURS, userPrefix: 'p:' }), 'JWT_ISSUERS: found https://idp.example twice.'],
    [
      listed(OURS, { ...THEIRS, userPrefix: undefined }),
      'JWT_ISSUERS: found https://idp.example and https://partner.example with no userPrefix, so that the user "ann" ' +
        'of one would be the user "ann" of the other; give each a userPrefix of its own, or one of them none.',
    ],
    [
      listed({ ...OURS, userPrefix: 'partner:' }, THEIRS),
      'JWT_ISSUERS: found https://idp.example and https://partner.example with the same userPrefix, so that the user ' +
        '"ann" of one would be the user "ann" of the other; give each a userPrefix of its own, or one of them none.',
    ],
    [
      listed({ ...OURS, issuer: 'http://idp.example' }),
      'JWT_ISSUERS: found an address that is not https; only one of this machine may be http.',
    ],
    [
      { ...ISSUED, RUNTIME_API_KEYS: TOKEN },
      'RUNTIME_API_KEYS: found a token of an issuer; make one with `openssl rand -hex 32`.',
    ],
    [
      { RUNTIME_API_KEYS: KEY, CONSOLE_CLIENT_ID: 'console' },
      'CONSOLE_CLIENT_ID: found without JWT_ISSUER; unset it. An entry of JWT_ISSUERS has a `clientId` of its own.',
    ],
    [
      { JWT_ISSUER: 'http://idp.example', JWT_AUDIENCE: 'a' },
      'JWT_ISSUER: found an address that is not https; only one of this machine may be http.',
    ],
    [
      { ALLOWED_ORIGINS: 'null' },
      'ALLOWED_ORIGINS: found "null"; allowed: origins such as https://app.example.com, without a path.',
    ],
    [
      { TRUSTED_PROXIES: 'proxy.example' },
      'TRUSTED_PROXIES: found "proxy.example"; allowed: IP addresses and networks such as 10.0.0.0/8.',
    ],
    [
      { HOST: '203.0.113.9', DEV_UI: 'true', ALLOW_ANONYMOUS: 'true' },
      'DEV_UI: found "true" with HOST "203.0.113.9", a public address; the development UI mode shows prompts ' +
        'and has no login. Set HOST=127.0.0.1.',
    ],
    [{ AUTH_MODE: 'jwt' }, 'JWT_ISSUER: found nothing; AUTH_MODE jwt needs the URL of the issuer.'],
    [
      { JWT_ISSUER: 'https://idp.example' },
      'JWT_AUDIENCE: found nothing; JWT_ISSUER needs the audience that its tokens are made for.',
    ],
    [
      { HOST: '0.0.0.0' },
      'HOST: found "0.0.0.0"; AUTH_MODE local listens on loopback only. Set RUNTIME_API_KEYS, or ' +
        'ALLOW_ANONYMOUS=true if every caller that can reach this address may use the runtime.',
    ],
    [
      { HOST: '0.0.0.0', RUNTIME_API_KEYS: KEY, DEV_UI: 'true' },
      'DEV_UI: found "true" with HOST "0.0.0.0"; the development UI mode has no login and listens on loopback only. ' +
        'Set HOST=127.0.0.1, or ALLOW_ANONYMOUS=true.',
    ],
  ])('%j', (environment: Record<string, string>, message) => {
    expect(messageOf(environment)).toBe(message);
  });

  test('an empty variable is an unset one', () => {
    const { PORT, DATABASE_URL } = readConfig({ PORT: '', DATABASE_URL: '' });
    expect([PORT, DATABASE_URL]).toEqual([8000, undefined]);
  });
});

describe('the key that signs cards', () => {
  const { privateKey: ec, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { privateKey: p384 } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const { privateKey: p521 } = generateKeyPairSync('ec', { namedCurve: 'P-521' });
  const { privateKey: bitcoin } = generateKeyPairSync('ec', { namedCurve: 'secp256k1' });
  const { privateKey: ed25519 } = generateKeyPairSync('ed25519');
  const { privateKey: agreement } = generateKeyPairSync('x25519');
  const { privateKey: rsa } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const { privateKey: short } = generateKeyPairSync('rsa', { modulusLength: 1_024 });
  const toJwk = (key: KeyObject, more: object = {}): string =>
    JSON.stringify({ ...key.export({ format: 'jwk' }), kid: 'k1', ...more });

  test.each([
    ['ES256', toJwk(ec)],
    ['ES256', toJwk(ec, { alg: 'ES256', use: 'sig' })],
    ['ES384', toJwk(p384)],
    ['ES512', toJwk(p521)],
    ['EdDSA', toJwk(ed25519)],
    ['RS256', toJwk(rsa, { alg: 'RS256' })],
    ['PS512', toJwk(rsa, { alg: 'PS512' })],
  ])('signs by %s', (alg, value) => {
    const { A2A_CARD_KEY: signer } = readConfig({ A2A_CARD_KEY: value, PUBLIC_URL: 'https://agents.example' });
    expect(signer?.header).toEqual({ alg, kid: 'k1', typ: 'JOSE' });
    const { d } = JSON.parse(value) as { d: string };
    expect(inspect(signer, { depth: null, showHidden: true }) + JSON.stringify(signer)).not.toContain(d);
  });

  test.each([
    ['no JSON', 'secret'],
    ['no object', 'null'],
    ['a public key', toJwk(publicKey)],
    ['a symmetric key', JSON.stringify({ kty: 'oct', k: 'c2VjcmV0', kid: 'k1', alg: 'HS256' })],
    ['no kid', toJwk(ec, { kid: undefined })],
    ['an empty kid', toJwk(ec, { kid: '' })],
    ['a kid that is no text', toJwk(ec, { kid: 1 })],
    ['an algorithm of another curve', toJwk(ec, { alg: 'ES384' })],
    ['an algorithm that does not sign', toJwk(ec, { alg: 'ECDH-ES' })],
    ['a curve without an algorithm', toJwk(bitcoin)],
    ['a key that cannot sign', toJwk(agreement)],
    ['RSA without an algorithm', toJwk(rsa)],
    ['RSA with one of a curve', toJwk(rsa, { crv: 'P-256', alg: 'ES256' })],
    ['RSA that is too short', toJwk(short, { alg: 'RS256' })],
    ['a curve that is none', toJwk(ec, { crv: 'constructor' })],
  ])('%s is refused', (_, value) => {
    expect(messageOf({ A2A_CARD_KEY: value })).toBe(
      'A2A_CARD_KEY: found a wrong value; allowed: a private JWK (EC, Ed25519, or RSA with `alg`) with a `kid`.',
    );
  });

  test('a key that signs where the service is needs the address of the operator', () => {
    expect(messageOf({ A2A_CARD_KEY: toJwk(ec) })).toMatch(/^PUBLIC_URL: found nothing; A2A_CARD_KEY signs/);
    expect(readConfig({ A2A_CARD_KEY: toJwk(ec) }, { listens: false }).A2A_CARD_KEY).toBeDefined();
  });
});

describe('PUBLIC_URL', () => {
  test.each([
    ['https://agents.example.com', 'https://agents.example.com'],
    ['https://agents.example.com/', 'https://agents.example.com'],
    ['HTTP://Agents.Example.com:8080/a/b//', 'http://agents.example.com:8080/a/b'],
  ])('%s', (value, expected) => {
    expect(readConfig({ PUBLIC_URL: value }).PUBLIC_URL).toBe(expected);
  });

  test.each(['agents.example.com', '/agents', 'ftp://x', 'https://u:p@x', 'https://x/?a', 'https://x/#a', 'https://'])(
    '%s is refused',
    (value) => {
      expect(messageOf({ PUBLIC_URL: value })).toBe(
        'PUBLIC_URL: found a wrong value; allowed: an http or https URL, which may have a path.',
      );
    },
  );
});

describe('docs/configuration.md', () => {
  const page = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');

  test('is what the schema makes; npm run docs:config writes it', () => {
    expect(page).toBe(configurationPage());
  });

  test('lists every variable once, with its meaning', () => {
    const rows = [...page.matchAll(/^- `([A-Z\d_]+)`(?: \[[^\]]+\])?: ([A-Z].*\.)$/gm)];
    expect(rows.map(([, name]) => name)).toEqual(
      Object.values(listSettings(features)).flatMap((settings) => Object.keys(settings)),
    );
  });
});
