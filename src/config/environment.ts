import { existsSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

/** The environment of this process, with the `.env` file of the working directory where there is one. */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}

/** The environment of this process as it is, for children, and with the `.env` file of now; changes neither. */
export function freshEnvironment(): Record<'own' | 'all', Record<string, string | undefined>> {
  const own = { ...process.env };
  return { own, all: { ...(existsSync('.env') ? parseEnv(readFileSync('.env', 'utf8')) : {}), ...own } };
}
