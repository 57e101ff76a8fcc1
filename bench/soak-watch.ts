import { createWriteStream, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import type { Client } from 'pg';
import { memoryOf } from './processes.ts';

/** What `npm run soak` looks at each minute. */

/** The inspector of a process: it collects garbage and takes heap snapshots, so that the service need not know how. */
export class Inspector {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #count = 0;
  #onChunk: (chunk: string) => void = () => undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => {
      const { id, method, params, result } = JSON.parse(String(data)) as {
        id?: number;
        method?: string;
        params?: { chunk: string };
        result?: unknown;
      };
      if (method === 'HeapProfiler.addHeapSnapshotChunk') this.#onChunk(params?.chunk ?? '');
      if (id === undefined) return;
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  /** Connects to the inspector that a process opened at a port of loopback. */
  static async open(port: number): Promise<Inspector> {
    const response = await fetch(`http://127.0.0.1:${port}/json/list`);
    const [target] = (await response.json()) as { webSocketDebuggerUrl: string }[];
    const socket = new WebSocket(target?.webSocketDebuggerUrl ?? '');
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    socket.addEventListener('open', () => resolve());
    socket.addEventListener('error', () => reject(new Error(`no inspector at port ${port}`)));
    await promise;
    return new Inspector(socket);
  }

  #call(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#count;
    const { promise, resolve } = Promise.withResolvers<unknown>();
    this.#waiting.set(id, resolve);
    this.#socket.send(JSON.stringify({ id, method, params }));
    return promise;
  }

  /** Memory in use after a collection, MB: what is reachable, and what lies outside the heap. */
  async usedMemory(): Promise<{ heap: number; external: number }> {
    for (let n = 0; n < 2; n++) await this.#call('HeapProfiler.collectGarbage');
    const expression = 'JSON.stringify(process.memoryUsage())';
    const { result } = (await this.#call('Runtime.evaluate', { expression })) as { result: { value: string } };
    const { heapUsed, external } = JSON.parse(result.value) as NodeJS.MemoryUsage;
    return { heap: heapUsed / 2 ** 20, external: external / 2 ** 20 };
  }

  /** Writes all objects of the heap to a file, which the developer tools of Chrome compare with another one. */
  async saveSnapshot(file: string): Promise<void> {
    const out = createWriteStream(file);
    this.#onChunk = (chunk) => void out.write(chunk);
    await this.#call('HeapProfiler.takeHeapSnapshot', { reportProgress: false });
    await new Promise<void>((resolve) => out.end(resolve));
  }

  close(): void {
    this.#socket.close();
  }
}

/** State of a connection in /proc that neither side has ended. */
const ESTABLISHED = '01';

/** Open descriptors of a process, and those of them that are connections to a port of loopback. */
function descriptorsOf(pid: number, port: number): { all: number; database: number } {
  const links = readdirSync(`/proc/${pid}/fd`).map((name) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${name}`);
    } catch {
      return ''; // closed meanwhile
    }
  });
  const inodes = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []));
  const remote = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = readFileSync(`/proc/${pid}/net/tcp`, 'utf8').trim().split('\n').slice(1);
  const fields = lines.map((line) => line.trim().split(/\s+/));
  return {
    all: links.length,
    database: fields.filter(
      ([, , to, state, ...more]) => to?.endsWith(remote) && state === ESTABLISHED && inodes.has(more[5] ?? ''),
    ).length,
  };
}

export interface TableSize {
  name: string;
  rows: number;
  dead: number;
  /** MB. */
  table: number;
  indexes: number;
}

export interface Sample {
  minute: number;
  /** MB of the watched replica. */
  heap: number;
  external: number;
  resident: number;
  descriptors: number;
  /** Connections to the database: of the watched replica, and all that the database has. */
  connections: number;
  backends: number;
  /** MB. */
  database: number;
  tables: TableSize[];
  queues: { name: string; waiting: number; running: number; oldestSeconds: number | null }[];
  requests: number;
  conversations: number;
  repeated: number;
  wrong: number;
}

const TABLES = `select relname as name, n_live_tup::int as rows, n_dead_tup::int as dead,
    (pg_table_size(relid) / 1048576.0)::float8 as table, (pg_indexes_size(relid) / 1048576.0)::float8 as indexes
  from pg_stat_user_tables where schemaname = 'public' order by pg_total_relation_size(relid) desc`;

/** Sizes of tables and indexes; rows and dead rows as the statistics of the database have them. */
const listTables = async (sql: Client): Promise<TableSize[]> => (await sql.query<TableSize>(TABLES)).rows;

export interface Watched {
  pid: number;
  url: string;
  inspector: Inspector;
}

/** One look. */
export async function look(
  { pid, url, inspector }: Watched,
  sql: Client,
): Promise<Omit<Sample, 'minute' | 'requests' | 'conversations' | 'repeated' | 'wrong'>> {
  const { heap, external } = await inspector.usedMemory();
  const { all, database: connections } = descriptorsOf(pid, sql.port);
  // Absent in the answer of a database that is away for now.
  const { queues = [] } = (await (await fetch(`${url}/service`)).json()) as Partial<Pick<Sample, 'queues'>>;
  const { rows } = await sql.query<{ backends: number; size: number }>(
    `select (select count(*)::int from pg_stat_activity
             where datname = current_database() and application_name = 'agent-runtime') as backends,
       (pg_database_size(current_database()) / 1048576.0)::float8 as size`,
  );
  return {
    heap,
    external,
    resident: memoryOf(pid),
    descriptors: all,
    connections,
    backends: rows[0]?.backends ?? 0,
    database: rows[0]?.size ?? 0,
    tables: await listTables(sql),
    queues,
  };
}

/** The line through some points by least squares: its slope, and the standard error of that. */
export function slopeOf(points: [x: number, y: number][]): { slope: number; error: number } {
  const count = points.length;
  const mean = (of: (point: [number, number]) => number) => points.reduce((sum, point) => sum + of(point), 0) / count;
  const [x, y] = [mean(([at]) => at), mean(([, at]) => at)];
  const spread = points.reduce((sum, [at]) => sum + (at - x) ** 2, 0);
  const slope = points.reduce((sum, [at, value]) => sum + (at - x) * (value - y), 0) / spread;
  const left = points.reduce((sum, [at, value]) => sum + (value - y - slope * (at - x)) ** 2, 0);
  return { slope, error: Math.sqrt(left / Math.max(1, count - 2) / spread) };
}
