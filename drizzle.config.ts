import { defineConfig } from 'drizzle-kit';

/** `npm run db:generate` reads only the schema; `npm run db:studio` needs DATABASE_URL. */
export default defineConfig({
  dialect: 'postgresql',
  schema: './src/platform/db/schema/schema.ts',
  out: './migrations',
  strict: true,
  verbose: true,
  ...(process.env['DATABASE_URL'] ? { dbCredentials: { url: process.env['DATABASE_URL'] } } : {}),
});
