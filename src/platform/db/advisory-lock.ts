import type { DatabaseAddress } from './connection.ts';
import { connect } from './client.ts';

/**
 * Runs `work` under a cluster-wide lock, unless another process holds it. A transaction on a separate connection holds
 * the lock, so it works behind a pooler in transaction mode. When the process or its network fails, another process may
 * start, which `work` must tolerate.
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
    // The rollback is explicit: a pooler closes the server connection of a client that leaves inside a transaction.
    await client.query('rollback').catch(() => undefined);
    await client.end().catch(() => undefined);
  }
}
