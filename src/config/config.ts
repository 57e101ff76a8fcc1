import type { z } from 'zod';
import { ConfigError } from '../core/errors.ts';
import { nearestName } from '../core/nearest-name.ts';
import { type AuthSettings, checkKeys, checkListening, isLoopbackHost, toAuth } from './access.ts';
import { DOOR_NAMES, type DoorName } from './features.ts';
import { toUserLimits, type UserLimits } from './limits.ts';
import { environmentSchema } from './settings.ts';

type Environment = z.output<typeof environmentSchema>;

/** The settings of a process, checked and with defaults. */
export type Config = Environment & {
  auth: AuthSettings;
  /** True where the console is served. */
  hasConsole: boolean;
  /** The doors that are open. */
  doors: ReadonlySet<DoorName>;
  /** The limits of one user. */
  fairness: UserLimits;
  /** A sentence for each variable that is no setting and resembles one. */
  misspelt: string[];
  /** The whole environment: `${NAME}` in headers of MCP servers is filled from it. */
  variables: Readonly<Record<string, string | undefined>>;
};

const SETTINGS = Object.keys(environmentSchema.shape);
/** What is read beside the settings: by commands, and by PostgreSQL's clients. */
const OTHERS = /^(?:AGENT_RUNTIME_KEY|AGENT_RUNTIME_URL|IMPORT_KEY|PG[A-Z]+)$/;

/** Variables whose value is never shown. */
const SECRET = /KEY|URL|TOKEN|HEADERS|ENDPOINT|MCP_SERVERS/;

/**
 * Reads the settings; an empty variable counts as unset. Work that does not `listens` takes any HOST without a key.
 * @throws {ConfigError} that names each wrong variable, what was found and what is allowed.
 */
export function readConfig(environment: Record<string, string | undefined>, { listens = true } = {}): Config {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = environmentSchema.safeParse(given);
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.map((issue) => describeIssue(issue, given)).join('\n'));
  const auth = toAuth(parsed.data);
  checkKeys(parsed.data.RUNTIME_SECRET_KEY, parsed.data.MODEL_API_KEY, 'RUNTIME_SECRET_KEY');
  const fairness = toUserLimits(parsed.data, auth.mode !== 'local' || parsed.data.ALLOW_ANONYMOUS);
  const doors = toDoors(parsed.data, auth);
  const hasConsole = parsed.data.CONSOLE ?? isLaptop(parsed.data, auth);
  const misspelt = Object.keys(given).flatMap(describeMisspelt);
  const config = { ...parsed.data, auth, hasConsole, doors, fairness, misspelt, variables: given };
  if (listens) {
    checkListening(config);
    checkSigning(config);
  }
  return config;
}

/** What the operator signs says where the service is, and only the operator knows. @throws {ConfigError} */
function checkSigning({ A2A_CARD_KEY, PUBLIC_URL }: Environment): void {
  if (A2A_CARD_KEY && PUBLIC_URL === undefined)
    throw new ConfigError(
      'PUBLIC_URL: found nothing; A2A_CARD_KEY signs where clients reach the service. Set it, such as ' +
        'https://agents.example.com.',
    );
}

const isLaptop = ({ HOST }: Environment, auth: AuthSettings) => auth.mode === 'local' && isLoopbackHost(HOST);

/** All doors are open to the one developer of a laptop; elsewhere the operator opens each. */
function toDoors(environment: Environment, auth: AuthSettings): ReadonlySet<DoorName> {
  const { DOORS: named } = environment;
  if (!named) return new Set(isLaptop(environment, auth) ? DOOR_NAMES : []);
  return new Set(DOOR_NAMES.filter((name) => named.includes(name)));
}

/** Says what a variable may have been meant to be; the environment has many that are none of ours. */
function describeMisspelt(name: string): string[] {
  if (SETTINGS.includes(name) || OTHERS.test(name)) return [];
  const meant = nearestName(name, SETTINGS, false);
  const isAlike = meant?.[0] === name[0]?.toUpperCase();
  return !isAlike ? [] : [`${name} is no setting and has no effect; did you mean ${meant}?`];
}

function describeIssue(issue: z.core.$ZodIssue, given: Record<string, string | undefined>): string {
  const name = String(issue.path[0]);
  const found = SECRET.test(name) ? 'a wrong value' : JSON.stringify(given[name]);
  return `${name}: found ${found}; allowed: ${issue.message}.`;
}
