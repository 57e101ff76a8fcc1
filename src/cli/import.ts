import { closeSync, openSync, readSync } from 'node:fs';
import { processEnvironment } from '../config/environment.ts';
import { HARNESS_APP } from '../core/names.ts';
import { type Api, type GlobalOptions, sessionsPath, withApi } from './api.ts';
import { CommandError, print, readJsonFile, toBar } from './output.ts';
import { openAdkDatabase } from './adk-database.ts';
import { importArtifacts } from './adk-artifacts.ts';
import { openAdkServer, openJsonLines, type SessionSource, type SourceSession } from './import-source.ts';
import { EXPORT_HEAD, importUser } from './users.ts';

interface ImportOptions extends GlobalOptions {
  as?: string;
  users?: string;
  artifacts?: string;
  dryRun?: boolean;
  replace?: boolean;
}

interface Report {
  imported: number;
  present: number;
  artifacts: number;
  /** The sessions that were not imported, by error message, each as `app/user/session`. */
  leftOut: Record<string, string[]>;
}

const SQLITE_HEAD = 'SQLite format 3';
/** Maximum number of sessions that the report names for each error message. */
const NAMED = 3;

/**
 * An import leaves sessions that exist already unchanged, so it can be repeated after an interruption.
 * @returns the exit code: 1 if a session could not be imported
 * @throws {CommandError} if the source cannot be read
 */
export async function importFrom(place: string, options: ImportOptions): Promise<number> {
  if (place.endsWith('.evalset.json')) return importEvalSet(place, options);
  if (isFile(place) && beginsWith(place, EXPORT_HEAD)) return importUser(place, options).then(() => 0);
  const source = await openSource(place, options);
  try {
    return await withApi(options, async (api) => {
      const report = await copySessions(api, source, options);
      if (options.json) print(JSON.stringify(report));
      else print(toText(source, report, options.dryRun === true));
      return Object.keys(report.leftOut).length > 0 ? 1 : 0;
    });
  } finally {
    await source.close();
  }
}

function openSource(place: string, options: ImportOptions): Promise<SessionSource> | SessionSource {
  if (/^postgres(ql)?:/.test(place)) return openAdkDatabase(place);
  if (/^https?:/.test(place))
    return openAdkServer(place, (options.users ?? options.user).split(','), processEnvironment()['IMPORT_KEY']);
  return beginsWith(place, SQLITE_HEAD) ? openAdkDatabase(place) : openJsonLines(place);
}

const isFile = (place: string) => !/^(postgres(ql)?|https?):/.test(place);

function beginsWith(file: string, head: string): boolean {
  try {
    const descriptor = openSync(file, 'r');
    const bytes = Buffer.alloc(head.length);
    readSync(descriptor, bytes);
    closeSync(descriptor);
    return bytes.toString('latin1') === head;
  } catch {
    throw new CommandError(`There is no file ${file} that can be read.`, 2);
  }
}

async function copySessions(api: Api, source: SessionSource, options: ImportOptions): Promise<Report> {
  const report: Report = { imported: 0, present: 0, artifacts: 0, leftOut: {} };
  let done = 0;
  for await (const session of source.sessions()) {
    try {
      report[await copySession(api, session, options)] += 1;
      if (options.artifacts && !options.dryRun)
        report.artifacts += await importArtifacts(api, options.artifacts, session, options.as ?? session.appName);
    } catch (error) {
      if (!(error instanceof CommandError) || error.exitCode !== 1) throw error;
      (report.leftOut[error.message] ??= []).push(`${session.appName}/${session.userId}/${session.sessionId}`);
    }
    done += 1;
    if (process.stderr.isTTY) showProgress(done, source.total);
  }
  if (process.stderr.isTTY) process.stderr.write('\n');
  return report;
}

async function copySession(
  api: Api,
  { appName, userId, sessionId, body }: SourceSession,
  options: ImportOptions,
): Promise<'imported' | 'present'> {
  const path = sessionsPath({ app: options.as ?? appName, user: userId });
  const existing = await api
    .send<object>('GET', `${path}/${encodeURIComponent(sessionId)}?numRecentEvents=0`)
    .catch((error: CommandError) => {
      if (error.status !== 404) throw error;
    });
  if (existing) return 'present';
  if (!options.dryRun) await api.sendText('POST', path, await body());
  return 'imported';
}

async function importEvalSet(file: string, options: ImportOptions): Promise<number> {
  const set = readJsonFile(file) as Partial<
    Record<'eval_set_id' | 'evalSetId', string> & Record<'eval_cases' | 'evalCases', unknown[]>
  >;
  const app = options.as ?? options.app;
  return withApi(options, async (api) => {
    const name = set.eval_set_id ?? set.evalSetId;
    const sets = `/dev/apps/${encodeURIComponent(app)}`;
    if (options.replace && !options.dryRun) await api.send('POST', `${sets}/eval-set-files?replace=true`, set);
    else if (!options.dryRun)
      await api.send('POST', `${sets}/eval-sets`, { evalSet: set }).catch((error: unknown) => {
        if (!(error instanceof CommandError) || error.status !== 409) throw error;
        throw new CommandError(`${error.message} --replace puts this one in its place.`, error.exitCode, error.status);
      });
    const cases = (set.eval_cases ?? set.evalCases ?? []).length;
    const count = `${cases} ${cases === 1 ? 'case' : 'cases'} ${options.dryRun ? 'would be imported' : 'imported'}`;
    const next = `agent-runtime eval run ${name}${app === HARNESS_APP ? '' : ` --app ${app}`}`;
    const text = `Evaluation set ${name}: ${count}.${options.dryRun ? '' : ` Run it: ${next}`}`;
    print(options.json ? JSON.stringify({ evalSetId: name, cases }) : text);
    return 0;
  });
}

function toText(source: SessionSource, { imported, present, artifacts, leftOut }: Report, isDry: boolean): string {
  const verb = isDry ? 'would be imported' : 'imported';
  const lines = [`${source.name}: ${imported} ${verb}, ${present} were there, ${artifacts} versions of artifacts.`];
  for (const [reason, sessions] of Object.entries(leftOut)) {
    const more = sessions.length > NAMED ? ` and ${sessions.length - NAMED} more` : '';
    lines.push(`Left out: ${sessions.slice(0, NAMED).join(', ')}${more}: ${reason}`);
  }
  return lines.join('\n');
}

function showProgress(done: number, total: number | undefined): void {
  const share = total === undefined ? '' : `${toBar(done / total)} `;
  process.stderr.write(`\r${share}${done}${total === undefined ? '' : `/${total}`} sessions`);
}
