import { existsSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

/**
 * Returns the environment of this process. Before, adds the variables of the file `.env` in the working directory, if
 * it exists.
 */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}

/**
 * Returns `own`, the environment of this process, and `all`, the same with the variables of the current `.env` file.
 * Does not change the environment of this process.
 */
export function freshEnvironment(): Record<'own' | 'all', Record<string, string | undefined>> {
  const own = { ...process.env };
  return { own, all: { ...(existsSync('.env') ? parseEnv(readFileSync('.env', 'utf8')) : {}), ...own } };
}
