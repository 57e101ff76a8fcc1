import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import type { IdempotentRequest } from '../conversation/idempotency/key.ts';
import { isForgottenKey } from '../conversation/idempotency/key-store.ts';

/** A request for a session, with its key where it has one. */
interface Keyed {
  key: SessionKey;
  request?: IdempotentRequest | undefined;
}

/** True when the idempotency key of the request had an invocation that went with its session. */
export const isForgotten = ({ key, request }: Keyed): SQL =>
  request ? isForgottenKey(key, request.idempotencyKey) : sql`false`;

/** True when the idempotency key of the request has or had an invocation, which a claim must not begin again. */
export const isRepeated = ({ key, request }: Keyed): SQL =>
  request
    ? sql`(${isForgotten({ key, request })} or exists (select 1 from ${invocations}
        where ${invocations.appName} = ${key.appName} and ${invocations.userId} = ${key.userId}
        and ${invocations.idempotencyKey} = ${request.idempotencyKey} and ${invocations.status} <> 'queued'))`
    : sql`false`;
