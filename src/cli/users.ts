import { type Api, type GlobalOptions, withApi } from './api.ts';

/** The options of the commands on one user. */
export interface UserOptions extends GlobalOptions {
  allApps?: boolean;
  dryRun?: boolean;
}

/** An erasure on the wire. */
interface ErasureBody {
  status: 'done' | 'running' | 'dryRun';
  counts: Record<string, number>;
}

/** The path of a user of an application. */
const userPath = (app: string, user: string): string =>
  `/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}`;

/** The applications that a command is about: that of `--app`, or all that hold data of the user. */
const appsOf = async (api: Api, user: string, { app, allApps }: UserOptions): Promise<string[]> =>
  allApps ? api.send<string[]>('GET', `/users/${encodeURIComponent(user)}/apps`) : [app];

/** Erases a user, in as many requests as it takes, and prints what was deleted. */
export const eraseUser = (user: string, options: UserOptions): Promise<void> =>
  withApi(options, async (api) => {
    for (const app of await appsOf(api, user, options)) {
      const path = `${userPath(app, user)}${options.dryRun ? '?dryRun=true' : ''}`;
      let erasure = await api.send<ErasureBody>('DELETE', path);
      while (erasure.status === 'running') {
        if (process.stderr.isTTY) process.stderr.write(`\r${totalOf(erasure)} rows`);
        erasure = await api.send<ErasureBody>('DELETE', path);
      }
      if (options.json) console.log(JSON.stringify({ app, ...erasure }));
      else console.log(toText(app, erasure));
    }
  });

const totalOf = ({ counts }: ErasureBody) => Object.values(counts).reduce((sum, count) => sum + count, 0);

function toText(app: string, erasure: ErasureBody): string {
  const verb = erasure.status === 'dryRun' ? 'would be deleted' : 'deleted';
  const lines = Object.entries(erasure.counts).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return [`${app}: ${totalOf(erasure)} ${verb}`, ...lines.map(([name, count]) => `  ${name}  ${count}`)].join('\n');
}
