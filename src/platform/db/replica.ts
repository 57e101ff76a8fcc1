import { escapeLiteral, type QueryConfig, type QueryResult } from 'pg';
import { currentContext } from '../context.ts';
import { sqlState } from './client.ts';
import type { ServerAddress } from './connection.ts';
import { ServerPool, type ServerPoolOptions } from './pool.ts';

/** The SQLSTATE of the check for a replica that is behind, or is no replica: a division by zero. */
const BEHIND = '22012';
/** Time for which a replica that is behind is not asked, and one that failed. */
const PAUSE_WHEN_BEHIND_MS = 100;
const PAUSE_AFTER_FAILURE_MS = 2_000;
/** A replica that does not answer holds a read up for that long, once in a pause. */
const MAX_WAIT_MS = 2_000;

/** A streaming replica for plain reads. A failure of it is no error: the read goes to the primary. */
export class Replica extends ServerPool {
  #pausedUntil = 0;

  constructor(server: ServerAddress, { config, ...options }: ServerPoolOptions) {
    const connectionTimeoutMillis = Math.min(config.connectionTimeoutMillis, MAX_WAIT_MS);
    super({ ...options, config: { ...config, connectionTimeoutMillis } }, () => server);
  }

  /** The result of a read; `undefined` where it has to go to the primary, as all later ones of the same request. */
  async query(statement: QueryConfig): Promise<QueryResult | undefined> {
    const { read } = currentContext();
    if (!read || read.isAtPrimary) return undefined;
    if (performance.now() >= this.#pausedUntil) {
      try {
        return await this.run(statement, () => false, hasGotTo(read.position));
      } catch (error) {
        const isBehind = sqlState(error)?.code === BEHIND;
        this.#pausedUntil = performance.now() + (isBehind ? PAUSE_WHEN_BEHIND_MS : PAUSE_AFTER_FAILURE_MS);
      }
    }
    read.isAtPrimary = true;
    return undefined;
  }
}

/** Fails with a division by zero unless the server is a replica that has got to a position. */
const hasGotTo = (position: string) =>
  `1 / (pg_is_in_recovery() and pg_last_wal_replay_lsn() >= ${escapeLiteral(position)}::pg_lsn)::int`;
