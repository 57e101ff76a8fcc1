import { z } from 'zod';
import { ConfigError } from '../core/errors.ts';
import { nearestName } from '../core/nearest-name.ts';
import type { AuthOptions } from '../platform/http/access/bearer.ts';
import type { UserLimits } from '../platform/http/limits/caller-limits.ts';
import { ACCESS, checkKeys, checkListening, isLoopbackHost, toAuth } from './access.ts';
import { AGENT, LIVE, MODEL } from './agent.ts';
import { DATABASE } from './database.ts';
import { LIMITS, toUserLimits } from './limits.ts';
import { OBSERVABILITY } from './observability.ts';
import { AUDIT, RETENTION } from './retention.ts';
import { SERVER } from './server.ts';
import { documented, type SettingValues, splitAtCommas } from './setting-schemas.ts';

/** Settings by heading. */
type SettingGroups = Readonly<Record<string, Record<string, z.ZodType>>>;

/** What the service needs before its features, by heading. Features declare the other settings. */
const SETTINGS = {
  Server: SERVER,
  Database: DATABASE,
  Access: ACCESS,
  'Limits of one user': LIMITS,
  Model: MODEL,
  Agent: AGENT,
  'Live sessions': LIVE,
  Retention: RETENTION,
  Audit: AUDIT,
  'Logs, metrics and traces': OBSERVABILITY,
} as const;

type AllOf<Groups> = Groups[keyof Groups];
export type Intersection<Union> = (Union extends unknown ? (each: Union) => void : never) extends (
  all: infer All,
) => void
  ? All
  : never;
/** The settings of several groups as one. */
export type Joined<Groups> = Intersection<AllOf<Groups>>;

type BaseSettings = SettingValues<Joined<typeof SETTINGS>>;

/** What a feature tells about settings (`src/platform/feature/feature.ts`). */
interface DeclaringFeature {
  name: string;
  door?: string;
  settings?: SettingGroups;
  checkSettings?: (config: never) => void;
}

/** The names of doors: protocols of other clients for which the service has an HTTP front end to the same sessions. */
export const listDoors = (features: readonly DeclaringFeature[]): string[] =>
  features.flatMap(({ name, door }) => (door === undefined ? [] : [name])).toSorted();

function doorSettings(names: readonly string[]) {
  const allowed = [...names, 'none'];
  const name = z.enum(allowed, `names out of ${allowed.join(', ')}`);
  return {
    DOORS: documented(
      z.string().transform(splitAtCommas).pipe(z.array(name).max(allowed.length)).optional(),
      'Protocols of other clients that are answered too: [front ends](front-ends.md), [OpenAI](openai.md), ' +
        '[A2A](a2a.md).',
      allowed.map((each) => `\`${each}\``).join(', '),
      'all in mode `local` on a loopback `HOST`, else `none`',
    ),
  };
}

/** The settings of the service and of features by heading, in the order of `docs/configuration.md`. */
export function listSettings(features: readonly DeclaringFeature[]): SettingGroups {
  const groups: Record<string, Record<string, z.ZodType>> = { ...SETTINGS, Doors: doorSettings(listDoors(features)) };
  for (const [heading, settings] of features.flatMap((each) => Object.entries(each.settings ?? {})))
    groups[heading] = { ...groups[heading], ...settings };
  return groups;
}

/** The settings of the service itself, and what follows from them. `src/process/config.ts` adds those of features. */
export type Config = BaseSettings & {
  auth: AuthOptions;
  /** Names of the doors that are open. */
  doors: ReadonlySet<string>;
  fairness: UserLimits;
  /** Warnings about environment variables that are not settings but resemble one, or were one. */
  misspelt: string[];
  /** The whole environment, for references `${NAME}` in the headers of MCP servers. */
  variables: Readonly<Record<string, string | undefined>>;
};

/** Names of environment variables that are not settings but that commands or PostgreSQL's clients read. */
const OTHERS = /^(?:AGENT_RUNTIME_KEY|AGENT_RUNTIME_URL|IMPORT_KEY|PG[A-Z]+)$/;

/** Settings that earlier versions had, with the behaviour that replaces each. */
const FORMER = new Map([
  ['DATABASE_PREPARED_STATEMENTS', 'DATABASE_POOLER says whether a pooler stands before the database'],
  ['DATABASE_READ_URL', 'reads go to DATABASE_URL'],
  ['LIVE_SESSION_MS', 'a live session ends after an hour'],
  ['MAX_ARTIFACT_BYTES', 'MAX_BODY_BYTES holds for artifacts'],
  ['MAX_LIVE_SESSIONS', 'it is half of MAX_INVOCATIONS'],
  ['MAX_STREAMS_PER_USER', 'it is half of MAX_REQUESTS_PER_USER'],
  ['MCP_CALL_TIMEOUT_MS', 'it stands beside each server in MCP_SERVERS'],
  ['MCP_ON_FAILURE', 'it stands beside each server in MCP_SERVERS'],
  ['OTEL_SEMCONV_STABILITY_OPT_IN', 'traces and metrics have the current names only'],
  ['SWEEP_INTERVAL_MS', 'it is a third of SESSION_LEASE_MS'],
]);

/** Names of environment variables whose value is never shown in messages. */
const SECRET = /KEY|URL|TOKEN|HEADERS|ENDPOINT|MCP_SERVERS/;

/**
 * Treats an empty variable as unset. A process that does not listen (`listens: false`) needs no login for its HOST.
 * @throws {ConfigError} that names each invalid variable, its value and the allowed values
 */
export function readConfig(
  environment: Record<string, string | undefined>,
  features: readonly DeclaringFeature[],
  { listens = true } = {},
): Config {
  const variables = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  );
  const schema = z.object(Object.assign({}, ...Object.values(listSettings(features))) as Record<string, z.ZodType>);
  const parsed = schema.safeParse(variables);
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.map((issue) => describeIssue(issue, variables)).join('\n'));
  const settings = parsed.data as BaseSettings & { DOORS?: string[] };
  const auth = toAuth(settings);
  checkKeys(settings.RUNTIME_SECRET_KEY, settings.MODEL_API_KEY, 'RUNTIME_SECRET_KEY');
  const fairness = toUserLimits(settings, auth.mode !== 'local' || settings.ALLOW_ANONYMOUS);
  const wanted = settings.DOORS ?? (isLaptop({ ...settings, auth }) ? listDoors(features) : []);
  const names = Object.keys(schema.shape);
  const misspelt = Object.keys(variables).flatMap((name) => describeMisspelt(name, names));
  const config = {
    ...settings,
    auth,
    doors: new Set(wanted.filter((name) => name !== 'none')),
    fairness,
    misspelt,
    variables,
  };
  if (listens) {
    checkListening(config);
    for (const { checkSettings } of features) checkSettings?.(config as never);
  }
  return config;
}

export const isLaptop = ({ auth, HOST }: Pick<Config, 'auth' | 'HOST'>): boolean =>
  auth.mode === 'local' && isLoopbackHost(HOST);

/**
 * Warns of a former or misspelt setting. A name counts as misspelt only if it begins with the letter of the setting
 * that it resembles, because most environment variables are not for the runtime.
 */
function describeMisspelt(name: string, settings: string[]): string[] {
  const now = FORMER.get(name);
  if (now !== undefined) return [`${name} is no setting any more and has no effect: ${now}.`];
  if (settings.includes(name) || OTHERS.test(name)) return [];
  const meant = nearestName(name, settings, false);
  const isAlike = meant?.[0] === name[0]?.toUpperCase();
  return !isAlike ? [] : [`${name} is no setting and has no effect; did you mean ${meant}?`];
}

function describeIssue(issue: z.core.$ZodIssue, variables: Record<string, string | undefined>): string {
  const name = String(issue.path[0]);
  const value = SECRET.test(name) ? 'a wrong value' : JSON.stringify(variables[name]);
  return `${name}: found ${value}; allowed: ${issue.message}.`;
}
