import { check, pgTable, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import { sql } from 'drizzle-orm';
import { bytes, identifier, ofUser, time, timeOfChange } from './columns.ts';

/** Users' grants to external resources, and pending consents. */
export const userCredentials = pgTable(
  'user_credentials',
  (c) => ({
    ...ofUser(),
    resource: identifier('resource').notNull(),
    grant: c.text('grant_sealed'),
    leaseExpireTime: time('lease_expire_time'),
    consent: c.text('consent_sealed'),
    consentSessionId: identifier('consent_session_id'),
    consentStateHash: bytes('consent_state_hash'),
    consentExpireTime: time('consent_expire_time'),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'user_credentials_pkey', columns: [t.appName, t.userId, t.resource] }),
    uniqueIndex('user_credentials_state_idx').on(t.consentStateHash),
    check(
      'user_credentials_consent_check',
      sql`num_nulls(consent_sealed, consent_session_id, consent_state_hash, consent_expire_time) in (0, 4)`,
    ),
  ],
);
