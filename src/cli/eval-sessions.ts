import { readConfig } from '../process/config.ts';
import { processEnvironment } from '../config/environment.ts';
import { createLog } from '../platform/log.ts';
import { listSessionsWhere } from './sessions-where.ts';
import { findDatabase, migrate, openPool } from '../process/open-database.ts';
import { type GlobalOptions, withApi } from './api.ts';
import { CommandError, print } from './output.ts';

interface AddSessionsOptions extends GlobalOptions {
  where?: string;
  tool?: string;
  label?: string[];
  error?: boolean;
  limit: string;
}

/** Maximum number of sessions that one command copies. The HTTP operation has the same limit. */
const MAX_SESSIONS = 200;

/**
 * Copies sessions into a set. This command evaluates `--where` in the database of the settings, which must be the
 * service's database. The service applies all other filters, and masks the copies.
 * @throws {CommandError} with exit code 2 if the predicate of `--where` fails
 */
export async function addSessions(set: string, options: AddSessionsOptions): Promise<void> {
  const limit = Number(options.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_SESSIONS)
    throw new CommandError(`--limit is a whole number from 1 to ${MAX_SESSIONS}.`, 2);
  const sessions = options.where === undefined ? undefined : await choose(options.where, options.app, limit);
  const selection = { limit, sessions, tool: options.tool, labels: options.label, hasError: options.error };
  await withApi(options, async (api) => {
    const path = `/dev/apps/${encodeURIComponent(options.app)}/eval-sets/${encodeURIComponent(set)}/add-sessions`;
    const { evalIds } = await api.send<{ evalIds: string[] }>('POST', path, selection);
    print(options.json ? JSON.stringify({ evalIds }) : evalIds.join('\n') || 'No session was chosen.');
  });
}

async function choose(predicate: string, appName: string, limit: number) {
  const config = readConfig(processEnvironment());
  const source = await findDatabase(config);
  try {
    await migrate(source.access, 'check');
    const database = await openPool(config, source.access.serving, createLog('silent'));
    try {
      const chosen = await listSessionsWhere(database, { appName, predicate, limit });
      return chosen.map(({ userId, sessionId }) => ({ userId, sessionId }));
    } catch (error) {
      throw new CommandError(`--where: ${toReason(error)}.`, 2);
    } finally {
      await database.close();
    }
  } finally {
    await source.stop();
  }
}

/** Returns PostgreSQL's error message, which the query builder's error has as its cause. */
function toReason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? toReason(error.cause) : error.message;
}
