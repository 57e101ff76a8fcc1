import { existsSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

/** Adds the `.env` file of the working directory, if there is one, to the environment of this process. */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}

/** The environment of this process for children (`own`), and with the current `.env` file (`all`); changes neither. */
export function freshEnvironment(): Record<'own' | 'all', Record<string, string | undefined>> {
  const own = { ...process.env };
  return { own, all: { ...(existsSync('.env') ? parseEnv(readFileSync('.env', 'utf8')) : {}), ...own } };
}
