import type { ClientConfig } from 'pg';
import type { DatabaseAddress } from './connection.ts';
import { connect } from './client.ts';

/** Why a replica cannot be used. `isOther`: it replicates another primary, so its data would be wrong. */
interface ReplicaFault {
  reason: string;
  isOther: boolean;
}

interface Server {
  /** System identifier of the PostgreSQL cluster; equal on primary and replicas. */
  identifier: string;
  database: string;
  isReplica: boolean;
}

/** Checks a replica. Log positions are comparable only between a primary and its own replicas. */
export async function findReplicaFault(
  primary: DatabaseAddress,
  replica: DatabaseAddress,
  config: ClientConfig,
): Promise<ReplicaFault | undefined> {
  let server: Server;
  try {
    server = await lookAt(replica, config);
  } catch (error) {
    return { reason: `it cannot be used (${(error as Error).message})`, isOther: false };
  }
  const own = await lookAt(primary, config);
  if (server.identifier !== own.identifier || server.database !== own.database)
    return { reason: 'it is no replica of the database of DATABASE_URL', isOther: true };
  return server.isReplica ? undefined : { reason: 'it is a primary and no replica', isOther: false };
}

async function lookAt(address: DatabaseAddress, config: ClientConfig): Promise<Server> {
  const client = await connect(address, config, { acceptsReadOnly: true });
  try {
    const { rows } = await client.query<Server>(
      `select system_identifier::text as identifier, current_database() as database,
         pg_is_in_recovery() as "isReplica" from pg_control_system()`,
    );
    return rows[0] ?? { identifier: '', database: '', isReplica: false };
  } finally {
    await client.end().catch(() => undefined);
  }
}
