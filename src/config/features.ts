import { createPrivateKey, type JsonWebKey } from 'node:crypto';
import { z } from 'zod';
import { documented, flag, list, splitAtCommas, text, whole } from './setting-schemas.ts';

export const CRONJOBS = {
  CRONJOBS: flag(false, 'Whether [cronjobs](cronjobs.md) are served, and run in this process.'),
  CRONJOBS_MAX_PER_USER: whole(100, [1, 100_000], 'Cronjobs of one user.'),
  CRONJOBS_MIN_INTERVAL_SECONDS: whole(
    30,
    [30, 86_400],
    'Shortest time between two times of a cronjob; a schedule that fires more often gets 422.',
  ),
  CRONJOBS_MAX_RUNS: whole(20, [1, 10_000], 'Runs in this process at once; others wait.'),
  CRONJOBS_MAX_RUNS_PER_USER: whole(5, [1, 10_000], 'Runs of one user at once, in all processes; others wait.'),
};

/** The protocols of other clients for which the service has an HTTP front end (a "door") to the same sessions. */
export const DOOR_NAMES = ['a2a', 'ag-ui', 'ai-sdk', 'durable-streams', 'mcp', 'openai'] as const;
export type DoorName = (typeof DOOR_NAMES)[number];

const DOORS_ALLOWED = [...DOOR_NAMES, 'none'] as const;

/** Signature algorithms of JWS by the curve of the key. */
const ALGORITHMS: Record<string, string> = { 'P-256': 'ES256', 'P-384': 'ES384', 'P-521': 'ES512', Ed25519: 'EdDSA' };
const CARD_KEY = 'a private JWK (EC, Ed25519, or RSA with `alg`) with a `kid`';

/** Returns the private key of a JWK and the JWS header for its signatures; `undefined` if the JWK cannot sign. */
function readCardKey(value: string) {
  try {
    const { kid, alg, ...jwk } = JSON.parse(value) as JsonWebKey;
    const algorithm = jwk.kty === 'RSA' ? /^[PR]S(?:256|384|512)$/.exec(String(alg))?.[0] : ALGORITHMS[String(jwk.crv)];
    const key = createPrivateKey({ key: jwk, format: 'jwk' });
    const { modulusLength = 2_048 } = key.asymmetricKeyDetails ?? {};
    if (!algorithm || (alg ?? algorithm) !== algorithm || modulusLength < 2_048 || !kid || typeof kid !== 'string')
      return undefined;
    return { key, header: { alg: algorithm, kid, typ: 'JOSE' } };
  } catch {
    return undefined;
  }
}

export const DOORS = {
  DOORS: documented(
    z
      .string()
      .transform(splitAtCommas)
      .pipe(z.array(z.enum(DOORS_ALLOWED, `names out of ${DOORS_ALLOWED.join(', ')}`)).max(DOORS_ALLOWED.length))
      .optional(),
    'Protocols of other clients that are answered too: [front ends](front-ends.md), [OpenAI](openai.md), ' +
      '[A2A](a2a.md).',
    DOORS_ALLOWED.map((name) => `\`${name}\``).join(', '),
    'all in mode `local` on a loopback `HOST`, else `none`',
  ),
  A2A_CARD_KEY: documented(
    z.string().transform(readCardKey).refine(Boolean, CARD_KEY).optional(),
    'Signs the cards of [A2A](a2a.md).',
    CARD_KEY,
  ),
};

export const WEBHOOKS = {
  WEBHOOKS: flag(false, 'Whether [webhooks](webhooks.md) are served, and sent by this process.'),
  WEBHOOKS_ALLOWED_HOSTS: list(
    'Hosts that webhooks may have: names, `*.example.com`, or an origin, which may be `http` and private.',
    'every public host, by https',
  ),
  WEBHOOKS_MAX_PER_USER: whole(10, [1, 1_000], 'Webhooks of one user.'),
};

export const EVALUATION = {
  EVALS: flag(
    false,
    'Whether [evaluation](evaluation.md) is served below `/apps` in every mode, and run in this process; ' +
      '`DEV_UI` has paths of its own.',
  ),
  EVALS_JUDGE_MODEL: text('Model that judges where a metric names none.', "the application's model"),
};
