import { z } from 'zod';
import { ACCESS } from './access.ts';
import { AGENT } from './agent.ts';
import { DATABASE } from './database.ts';
import { INVOCATIONS } from './invocations.ts';
import { LIMITS } from './limits.ts';
import { LIVE, MODEL } from './model.ts';
import { OBSERVABILITY } from './observability.ts';
import { ARTIFACTS, AUDIT, RETENTION } from './retention.ts';
import { SERVER } from './server.ts';
import { documented, type SettingValues, splitAtCommas } from './setting-schemas.ts';

/** Settings by heading. */
export type SettingGroups = Readonly<Record<string, Record<string, z.ZodType>>>;

/** The settings of the service itself, by subject. Features declare their own. */
const SETTINGS = {
  Server: SERVER,
  Database: DATABASE,
  Access: ACCESS,
  'Limits of one user': LIMITS,
  Model: MODEL,
  Agent: AGENT,
  'Invocations and limits': INVOCATIONS,
  'Live sessions': LIVE,
  Artifacts: ARTIFACTS,
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

export type BaseSettings = SettingValues<Joined<typeof SETTINGS>>;

/** What a feature tells about settings (`src/platform/feature/feature.ts`). */
export interface DeclaringFeature {
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
