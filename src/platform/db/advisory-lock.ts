import type { DatabaseAddress } from './connection.ts';
import { connect } from './client.ts';

/**
 * Runs `work` under a cluster-wide lock; does nothing if another process holds the lock. The lock belongs to a
 * transaction on a separate connection, so it also works behind a pooler in transaction mode. If the process or its
 * network fails, the lock is released and another process may start, which `work` must tolerate.
 * @returns true if `work` ran
 */
export async function ifAlone(
  { address, connectTimeoutMs }: { address: DatabaseAddress; connectTimeoutMs: number },
  lock: number,
  work: () => Promise<void>,
): Promise<boolean> {
  const client = await connect(address, {
    application_name: 'agent-runtime lock',
    keepAlive: true,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: connectTimeoutMs,
  });
  try {
    await client.query('begin; set local idle_in_transaction_session_timeout = 0');
    const { rows } = await client.query<{ mine: boolean }>('select pg_try_advisory_xact_lock($1) as mine', [lock]);
    if (rows[0]?.mine !== true) return false;
    await work();
    return true;
  } finally {
    // Rolled back explicitly, because a pooler would close the server connection of a client that leaves inside a
    // transaction.
    await client.query('rollback').catch(() => undefined);
    await client.end().catch(() => undefined);
  }
}
