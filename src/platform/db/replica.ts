import { Pool, type PoolClient, type PoolConfig, type QueryConfig } from 'pg';
import { currentContext } from '../context.ts';
import { chargeShare, pace } from '../work/fair-share.ts';
import type { ServerAddress } from './connection.ts';
import { limitsOf, type PoolOptions } from './pool-options.ts';
import { sqlState } from './repeated.ts';
import { type Limits, queryFor } from './row-security.ts';
import { ServerClient } from './server-client.ts';
import { hasOnePlan } from './statement-names.ts';
import { CALLER_SHARE, Turns } from './turns.ts';

/** What the check of a replica that is behind, or is no replica, fails with: a division by zero. */
const BEHIND = '22012';
/** A replica that is behind is not looked at for so long, and one that failed. */
const PAUSE_WHEN_BEHIND_MS = 100;
const PAUSE_AFTER_FAILURE_MS = 2_000;
/** A replica that does not answer holds a read up for that long, once in a pause. */
const MAX_WAIT_MS = 2_000;

/**
 * A streaming replica for plain reads, with connections of its own. Whatever goes wrong with it is no error: the read
 * goes to the primary.
 */
export class Replica {
  readonly #pool: Pool;
  readonly #limits: Limits;
  readonly #turns: Turns;
  #pausedUntil = 0;

  /** @param server address of the replica; `config` is that of the other pools */
  constructor(server: ServerAddress, config: PoolConfig & { max: number }, options: PoolOptions) {
    const waitMs = Math.min(options.connectTimeoutMs, MAX_WAIT_MS);
    this.#pool = new Pool({
      ...config,
      connectionTimeoutMillis: waitMs,
      Client: class extends ServerClient {
        constructor(given: PoolConfig = {}) {
          super({ ...given, ...server });
        }
      },
    });
    this.#pool.on('error', () => undefined);
    this.#limits = limitsOf(options);
    this.#turns = new Turns({
      max: config.max,
      maxShared: Math.max(1, Math.floor(config.max * CALLER_SHARE)),
      pace,
      timeoutMs: waitMs,
      timeoutMessage: 'no connection to the replica became free',
    });
  }

  /** The result of a read; `undefined` where it has to go to the primary, as all later ones of the same request. */
  async query(config: QueryConfig): Promise<unknown> {
    const reading = currentContext().read;
    if (!reading || reading.isAtPrimary) return undefined;
    if (performance.now() >= this.#pausedUntil) {
      try {
        return await this.#ask(config, reading.position);
      } catch (error) {
        const isBehind = sqlState(error)?.code === BEHIND;
        this.#pausedUntil = performance.now() + (isBehind ? PAUSE_WHEN_BEHIND_MS : PAUSE_AFTER_FAILURE_MS);
      }
    }
    reading.isAtPrimary = true;
    return undefined;
  }

  async #ask(config: QueryConfig, position: string): Promise<unknown> {
    const caller = currentContext().caller;
    const end = await this.#turns.take();
    let client: (PoolClient & Pick<ServerClient, 'bytesMoved'>) | undefined;
    let before = 0;
    let mustEnd = true;
    try {
      client = (await this.#pool.connect()) as PoolClient & Pick<ServerClient, 'bytesMoved'>;
      before = client.bytesMoved;
      const result = await queryFor(client, currentContext().userId, this.#limits, config, {
        isFixed: hasOnePlan(config),
        since: position,
      });
      mustEnd = false;
      return result;
    } catch (error) {
      mustEnd = sqlState(error)?.code !== BEHIND;
      throw error;
    } finally {
      if (client) chargeShare(caller, client.bytesMoved - before);
      client?.release(mustEnd);
      end();
    }
  }

  /** How the connections are used right now, for metrics. */
  use(): { open: number; idle: number; waiting: number } {
    const { totalCount: open, idleCount: idle } = this.#pool;
    return { open, idle, waiting: this.#turns.waiting };
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}
