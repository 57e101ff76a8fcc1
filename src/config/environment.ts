import { existsSync } from 'node:fs';

/** The environment of this process, with the `.env` file of the working directory where there is one. */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}
