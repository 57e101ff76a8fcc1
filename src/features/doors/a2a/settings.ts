import { createPrivateKey, type JsonWebKey } from 'node:crypto';
import { z } from 'zod';
import type { Config } from '../../../config/config.ts';
import { documented, type SettingValues } from '../../../config/setting-schemas.ts';
import { ConfigError } from '../../../core/errors.ts';

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

export const A2A_SETTINGS = {
  A2A_CARD_KEY: documented(
    z.string().transform(readCardKey).refine(Boolean, CARD_KEY).optional(),
    'Signs the cards of [A2A](a2a.md).',
    CARD_KEY,
  ),
};

export type A2aSettings = SettingValues<typeof A2A_SETTINGS>;

/** @throws {ConfigError} without PUBLIC_URL: a signed card contains this address, which only the operator knows */
export function checkSigning({ A2A_CARD_KEY, PUBLIC_URL }: A2aSettings & Pick<Config, 'PUBLIC_URL'>): void {
  if (A2A_CARD_KEY && PUBLIC_URL === undefined)
    throw new ConfigError(
      'PUBLIC_URL: found nothing; A2A_CARD_KEY signs where clients reach the service. Set it, such as ' +
        'https://agents.example.com.',
    );
}
