import { escapeLiteral, type QueryConfig, type QueryResult } from 'pg';
import { currentContext } from '../context.ts';
import { sqlState } from './client.ts';
import type { ServerAddress } from './connection.ts';
import { ServerPool, type ServerPoolOptions } from './pool.ts';

/** SQLSTATE of the failed position check, which divides by zero. */
const BEHIND = '22012';
/** Pauses after which a replica that lags or has failed is tried again, in milliseconds. */
const PAUSE_WHEN_BEHIND_MS = 100;
const PAUSE_AFTER_FAILURE_MS = 2_000;
/** Maximum delay that an unresponsive replica adds to a read, in milliseconds; a delay occurs once per pause. */
const MAX_WAIT_MS = 2_000;

/** A streaming replica for plain reads. If it fails, the read goes to the primary. */
export class Replica extends ServerPool {
  #pausedUntil = 0;

  constructor(server: ServerAddress, { config, ...options }: ServerPoolOptions) {
    const connectionTimeoutMillis = Math.min(config.connectionTimeoutMillis, MAX_WAIT_MS);
    super({ ...options, config: { ...config, connectionTimeoutMillis } }, () => server);
  }

  /** Reads from the replica; `undefined` if this and later reads of the request must go to the primary. */
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

/** SQL that divides by zero unless the server is a replica that has replayed the log up to the position. */
const hasGotTo = (position: string) =>
  `1 / (pg_is_in_recovery() and pg_last_wal_replay_lsn() >= ${escapeLiteral(position)}::pg_lsn)::int`;
