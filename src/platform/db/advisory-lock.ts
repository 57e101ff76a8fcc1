import type { DatabaseAddress } from './connection.ts';
import { connect } from './client.ts';

/**
 * Runs `work` while no other process does anything under the same lock; where another one does, nothing happens. The
 * lock belongs to a transaction on a connection of its own, which a pooler in transaction mode keeps together as well.
 * It is given back whenever this process or its network dies; `work` has to bear that another process begins then.
 * @returns whether it was done.
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
    // A pooler closes the server's connection where a client leaves in a transaction.
    await client.query('rollback').catch(() => undefined);
    await client.end().catch(() => undefined);
  }
}
