import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { CommandError, print } from './output.ts';
import { type Api, type GlobalOptions, withApi } from './api.ts';

interface UserOptions extends GlobalOptions {
  allApps?: boolean;
  dryRun?: boolean;
}

interface ErasureBody {
  status: 'done' | 'running' | 'dryRun';
  counts: Record<string, number>;
}

const userPath = (app: string, user: string): string =>
  `/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}`;

/** Returns the application of `--app`, or with `--all-apps` every application that has data of the user. */
const listApps = async (api: Api, user: string, { app, allApps }: UserOptions): Promise<string[]> =>
  allApps ? api.send<string[]>('GET', `/users/${encodeURIComponent(user)}/apps`) : [app];

/** Repeats the erasure until everything is erased, and prints the numbers of deleted rows. */
export const eraseUser = (user: string, options: UserOptions): Promise<void> =>
  withApi(options, async (api) => {
    for (const app of await listApps(api, user, options)) {
      const path = `${userPath(app, user)}${options.dryRun ? '?dryRun=true' : ''}`;
      let erasure = await api.send<ErasureBody>('DELETE', path);
      while (erasure.status === 'running') {
        if (process.stderr.isTTY) process.stderr.write(`\r${countRows(erasure)} rows`);
        erasure = await api.send<ErasureBody>('DELETE', path);
        // Clears the line with the progress.
        if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
      }
      if (options.json) print(JSON.stringify({ app, ...erasure }));
      else print(toText(app, erasure));
    }
  });

/** The text with which every file of `users export` begins. */
export const EXPORT_HEAD = '{"kind":"agent-runtime user export"';
/** Maximum size of one import request. Larger files are sent in several requests. */
const REQUEST_CHARACTERS = 4_000_000;
const REQUEST_LINES = 1_000;

/** Imports a file of `users export`. @throws {CommandError} for a truncated file, after its rows were imported */
export async function importUser(
  file: string,
  options: GlobalOptions & { as?: string; dryRun?: boolean },
): Promise<void> {
  await withApi(options, async (api) => {
    const sums = { imported: 0, present: 0 };
    let [path, lines, characters, seen, end]: [string, string[], number, number, number] = ['', [], 0, 0, -1];
    const send = async () => {
      if (lines.length === 0 || options.dryRun) return;
      const { imported, present } = await api.sendLines<typeof sums>(`${path}/import`, lines.join('\n'));
      sums.imported += imported;
      sums.present += present;
    };
    for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
      const head = line.startsWith('{"kind"') ? (JSON.parse(line) as Record<string, string | number>) : undefined;
      if (head && typeof head['userId'] === 'string')
        path = userPath(options.as ?? String(head['appName']), head['userId']);
      if (head?.['kind'] === 'end') end = Number(head['lines']);
      if (head || line === '') continue;
      if (characters + line.length > REQUEST_CHARACTERS || lines.length === REQUEST_LINES) {
        await send();
        [lines, characters] = [[], 0];
      }
      lines.push(line);
      characters += line.length;
      seen += 1;
    }
    await send();
    if (options.json) print(JSON.stringify(sums));
    else if (options.dryRun) console.log(`${file}: ${seen} rows would be imported.`);
    else console.log(`${file}: ${sums.imported} rows imported, ${sums.present} were there.`);
    if (end !== seen) throw new CommandError(`${file} has ${seen} rows of ${Math.max(end, 0)}: it was cut off.`, 1);
  });
}

const countRows = ({ counts }: ErasureBody) => Object.values(counts).reduce((sum, count) => sum + count, 0);

function toText(app: string, erasure: ErasureBody): string {
  const verb = erasure.status === 'dryRun' ? 'would be deleted' : 'deleted';
  const lines = Object.entries(erasure.counts).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return [`${app}: ${countRows(erasure)} ${verb}`, ...lines.map(([name, count]) => `  ${name}  ${count}`)].join('\n');
}
