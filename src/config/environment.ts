import { existsSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

/** Adds the variables of the file `.env`, if it exists, to this process's environment. */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}

/** Reads `.env` without changing this process's environment: `own` is that environment, `all` includes the file. */
export function freshEnvironment(): Record<'own' | 'all', Record<string, string | undefined>> {
  const own = { ...process.env };
  return { own, all: { ...(existsSync('.env') ? parseEnv(readFileSync('.env', 'utf8')) : {}), ...own } };
}
