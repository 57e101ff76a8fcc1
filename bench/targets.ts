import { Pool } from 'pg';
import { migrateDatabase } from '../src/platform/db/migrate.ts';
import { NODE_FLAGS } from '../test/support/node-flags.ts';
import { LoadClient } from './load.ts';
import { freePort, type Postgres } from './postgres.ts';
import { type ServerProcess, startServer } from './processes.ts';
import { seedPeer, seedRuntime } from './seed.ts';
import { STATEMENTS } from './servers/statements.js';
import type { Work } from './works.ts';

export const IN_FLIGHT = 16;

/** One of those that are measured. */
export interface Target {
  name: 'peer' | 'ours' | 'express' | 'database';
  databaseUrl: string;
  /** Absent for the database alone. */
  server?: ServerProcess;
  client?: LoadClient;
  /** The n-th request of a round, answered; `undefined` for work that it does not do. */
  worker(work: Work, user: string): ((n: number) => Promise<void>) | undefined;
  close(): Promise<void>;
}

const here = (name: string) => new URL(`servers/${name}`, import.meta.url).pathname;

/** The programs by name, and the path that says that one is there. `main` is the product's own entry. */
export const PROGRAMS = {
  peer: { file: here('peer.js'), health: '/list-apps' },
  ours: { file: here('start.ts'), health: '/health' },
  express: { file: here('express.js'), health: '/health' },
};

const COMPILED = new URL('../node_modules/.cache/agent-runtime', import.meta.url).pathname;

/** Starts the model over HTTP, a process of its own, on a free port. */
export async function startModel(): Promise<ServerProcess> {
  const port = await freePort();
  return startServer([here('model.js'), String(port)], port, '/health');
}

/** Starts a program on a free port. */
export async function startProgram(
  name: keyof typeof PROGRAMS,
  databaseUrl: string,
  modelUrl = '',
): Promise<ServerProcess> {
  const { file, health } = PROGRAMS[name];
  const port = await freePort();
  // As `npm start` has it.
  const flags = name === 'ours' ? NODE_FLAGS : [];
  const compiled = name === 'ours' ? { NODE_COMPILE_CACHE: COMPILED } : {};
  return startServer([...flags, file, String(port), databaseUrl, modelUrl], port, health, {
    NODE_ENV: 'production',
    ...compiled,
  });
}

/** Starts all that are measured on two seeded databases of one server. */
export async function startTargets(postgres: Postgres, modelUrl: string): Promise<Target[]> {
  const oursUrl = await postgres.createDatabase('ours');
  const peerUrl = await postgres.createDatabase('peer');
  await migrateDatabase({ url: oursUrl });
  const [peer, ours, express] = [
    await startTarget('peer', peerUrl, modelUrl),
    await startTarget('ours', oursUrl, modelUrl),
    await startTarget('express', oursUrl, modelUrl),
  ];
  // The peer makes its tables with the first request.
  await peer.client.send({ method: 'GET', path: '/apps/harness_agent/users/u/sessions' });
  await seedPeer(peerUrl);
  await seedRuntime(ours.client);
  return [peer, ours, express, databaseTarget(oursUrl)];
}

async function startTarget(name: keyof typeof PROGRAMS, databaseUrl: string, modelUrl: string) {
  const server = await startProgram(name, databaseUrl, modelUrl);
  const client = new LoadClient(server.url, IN_FLIGHT);
  return {
    name,
    databaseUrl,
    server,
    client,
    worker: (work: Work, user: string) => {
      if (name === 'peer' && work.goals.peer === undefined) return undefined;
      return (n: number) => client.send(work.request(n, user));
    },
    close: async () => {
      await client.close();
      await server.stop();
    },
  } satisfies Target;
}

function databaseTarget(databaseUrl: string): Target {
  const pool = new Pool({ connectionString: databaseUrl, max: 10 });
  return {
    name: 'database',
    databaseUrl,
    worker: ({ statement }, user) => {
      if (!statement) return undefined;
      const { name, values } = statement;
      const text: string = STATEMENTS[name as keyof typeof STATEMENTS];
      return async (n) => void (await pool.query({ name, text, values: values(n, user) }));
    },
    close: () => pool.end(),
  };
}
