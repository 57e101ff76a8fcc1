import { Client, escapeIdentifier } from 'pg';
import { MINUTE } from './patience.ts';

/** Said where there is none. */
export const NO_CLUSTER =
  'skipped: CITUS_URL names no database with the extension citus on a coordinator that has workers';

/** The URLs of the nodes that a coordinator knows, itself first, each with the database that `url` names. */
export async function listNodes(url: string): Promise<string[]> {
  const { rows } = await onServer(url, (client) =>
    client.query<{ host: string; port: number }>(
      `select nodename as host, nodeport as port from pg_dist_node
       where isactive and groupid <> 0 order by groupid`,
    ),
  );
  if (rows.length === 0) throw new Error(`The coordinator of CITUS_URL has no workers: select citus_add_node(...).`);
  const workers = rows.map(({ host, port }) => Object.assign(new URL(url), { hostname: host, port }).href);
  return [url, ...workers];
}

/** The same server, and another database. */
export function withDatabase(url: string, name: string): string {
  return Object.assign(new URL(url), { pathname: `/${encodeURIComponent(name)}` }).href;
}

/** Makes new databases of one name on all nodes a cluster, so that clones of them are one too: they keep the OIDs. */
export async function joinNodes(nodes: string[], name: string): Promise<void> {
  for (const node of nodes)
    await onServer(withDatabase(node, name), (client) => client.query('create extension citus'));
  const [coordinator = '', ...workers] = nodes;
  await onServer(withDatabase(coordinator, name), async (client) => {
    const { hostname, port } = new URL(coordinator);
    await client.query('select citus_set_coordinator_host($1, $2)', [hostname, port]);
    for (const worker of workers.map((node) => new URL(node))) {
      await client.query('select citus_add_node($1, $2)', [worker.hostname, worker.port]);
    }
  });
}

/** Makes a database one that can be cloned and not be connected to, on every node. */
export const toTemplate = (nodes: string[], name: string): Promise<void> =>
  onServers(nodes, async (client) => {
    await client.query(`alter database ${escapeIdentifier(name)} with is_template true allow_connections false`);
    // On a cluster each database has a process of the extension that stays connected.
    await client.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, [name]);
  });

/** Does the same on each of some servers, at once. */
export async function onServers(urls: string[], work: (client: Client) => Promise<unknown>): Promise<void> {
  await Promise.all(urls.map((url) => onServer(url, work)));
}

async function onServer<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: MINUTE });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
