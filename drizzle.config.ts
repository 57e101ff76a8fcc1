import { defineConfig } from 'drizzle-kit';

const { DATABASE_MIGRATION_URL, DATABASE_URL, DATABASE_SCHEMA = 'public' } = process.env;
const url = DATABASE_MIGRATION_URL || DATABASE_URL;
// drizzle-kit writes "public" into foreign keys; the service's migrator takes it out for another schema.
if (DATABASE_SCHEMA !== 'public' && process.argv.some((word) => word === 'migrate' || word === 'push'))
  throw new Error('drizzle-kit migrates the schema public only: with DATABASE_SCHEMA run npm run db:migrate.');

// The tables force row-level security on their owner too: a migration changes all users' rows.
process.env['PGOPTIONS'] ??= '-c agent_runtime.all_users=on';

/** `npm run db:generate` reads only the schema; `npx drizzle-kit migrate` and `npx drizzle-kit studio` need a URL. */
export default defineConfig({
  dialect: 'postgresql',
  schema: './src/platform/db/schema/schema.ts',
  out: './migrations',
  migrations: { table: 'agent_runtime_migrations', schema: 'public' },
  strict: true,
  verbose: true,
  ...(url ? { dbCredentials: { url } } : {}),
});
