import { pathToFileURL } from 'node:url';
import { ConfigError } from '../../core/errors.ts';
import { ownLines } from '../../core/own-stack.ts';

/** @throws {ConfigError} that names the file, and the line in the file where the error occurred */
export async function importFile(path: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError([`${path}: it cannot be loaded: ${reason}`, ...ownLines(error)].join('\n'), { cause: error });
  }
}
