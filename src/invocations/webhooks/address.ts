import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import type { Database } from '../../platform/db/database.ts';
import { ValidationFailedError, valueError } from '../../platform/http/operation/request-errors.ts';
import { type EgressPolicy, whyDenied } from '../../platform/net/egress.ts';
import { findWebhookByUrl, type WebhookKey } from './webhook-store.ts';

/** The settings that the feature `webhooks` declares. Without it there are none, and no address is taken. */
export interface WebhookSettings {
  WEBHOOKS?: boolean;
  WEBHOOKS_ALLOWED_HOSTS?: string[];
  [other: string]: unknown;
}

const MAX_URL_LENGTH = 1_024;
export const webhookUrlSchema = z.string().min(1).max(MAX_URL_LENGTH);

const SECRET_BYTES = 32;

/** Returns a new secret in the format of the specification Standard Webhooks. */
export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`;

/** Returns the egress policy of webhook deliveries: public https addresses, and the hosts that the operator allows. */
export const toEgressPolicy = ({ WEBHOOKS_ALLOWED_HOSTS: hosts = [] }: WebhookSettings) =>
  ({ allowLoopback: false, ...(hosts.length > 0 ? { allowedHosts: hosts } : {}) }) satisfies EgressPolicy;

const refused = (place: string, message: string, input: unknown) =>
  new ValidationFailedError([valueError(['body', place], message, input)]);

/** The IP addresses of a webhook's host are checked at each delivery. @throws {ValidationFailedError} if not allowed */
export function toAddress(text: string, policy: EgressPolicy): URL {
  // The class URL silently drops these characters, so two different texts would register the same address.
  const url = /[\u0000-\u0020\u007f\\]/.test(text) ? null : URL.parse(text);
  if (!url) throw refused('url', 'this is no address, for example https://example.com/hooks', text);
  if (url.hash !== '') throw refused('url', 'an address of a webhook has no part after #', text);
  const why = whyDenied(url, policy);
  if (why !== undefined) throw refused('url', why, text);
  return url;
}

/** @throws {ValidationFailedError} if the user has not registered the address */
export async function requireWebhook(
  db: Database,
  { WEBHOOKS }: WebhookSettings,
  owner: Pick<WebhookKey, 'appName' | 'userId'>,
  address: string | null | undefined,
): Promise<string | undefined> {
  if (address == null) return undefined;
  if (!WEBHOOKS) throw refused('webhookUrl', 'webhooks are not enabled here; the setting is WEBHOOKS', address);
  const webhook = await findWebhookByUrl(db, owner, URL.parse(address)?.href ?? address);
  if (webhook) return webhook.url;
  throw refused('webhookUrl', 'no webhook has this address; POST /harness/webhooks registers it', address);
}
