import { Client } from 'pg';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { startEphemeral } from './ephemeral-server.ts';
import { dumpSchema } from './schema-dump.ts';

// npm run db:dump: prints the schema that the migrations make, to read and to compare.
const server = await startEphemeral();
try {
  await migrateDatabase({ url: server.url });
  const client = new Client({ connectionString: server.url });
  await client.connect();
  process.stdout.write(`${await dumpSchema(client)}\n`);
  await client.end();
} finally {
  await server.stop();
}
