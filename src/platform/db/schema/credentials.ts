import { check, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import { sql } from 'drizzle-orm';
import { bytes, identifier, ofUser, ofUserPolicy, time, timeOfChange } from './columns.ts';
import { table } from './table.ts';

export const userCredentials = table(
  'user_credentials',
  "Users' grants to external resources, and pending consents; encrypted with RUNTIME_SECRET_KEY.",
  (c) => ({
    ...ofUser('User who granted it.'),
    resource: identifier('resource').notNull().comment('Address of the resource, an MCP server.'),
    grant: c.text('grant_sealed').comment('Access and refresh tokens, encrypted; null if nothing is granted.'),
    leaseExpireTime: time('lease_expire_time').comment(
      'End of the lease of the process that renews the grant; null if none does.',
    ),
    consent: c
      .text('consent_sealed')
      .comment('Data to complete the pending consent, encrypted; null if none is pending.'),
    consentSessionId: identifier('consent_session_id').comment('Session whose invocation waits for the consent.'),
    consentStateHash: bytes('consent_state_hash').comment('SHA-256 of the OAuth state returned by the browser.'),
    consentExpireTime: time('consent_expire_time').comment('When the pending consent expires.'),
    updateTime: timeOfChange('update_time').comment('Last change.'),
  }),
  (t) => [
    primaryKey({ name: 'user_credentials_pkey', columns: [t.appName, t.userId, t.resource] }),
    uniqueIndex('user_credentials_state_idx').on(t.consentStateHash),
    check(
      'user_credentials_consent_check',
      sql`num_nulls(consent_sealed, consent_session_id, consent_state_hash, consent_expire_time) in (0, 4)`,
    ),
    ofUserPolicy(),
  ],
);
