import type { CredentialContext } from '../conversation/credentials/credentials.ts';
import { copyArtifacts } from '../conversation/artifacts/copies.ts';
import type { SessionContext } from '../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../invocations/context.ts';
import type { Feature, User, UserCopies, UserTable } from '../platform/feature/feature.ts';
import type { Database } from '../platform/db/database.ts';
import type { Audit } from '../platform/http/audit/audit.ts';
import type { Sockets } from '../platform/http/operation/sockets.ts';
import type { Config } from './config.ts';
import { features } from './features.ts';

/** The services that all operations and background jobs of this process use. Tests replace some of them. */
export interface Context extends InvocationContext {
  config: Config;
  version: string;
  isAccepting: () => boolean;
  /** Maximum interval between two searches for invocations of processes that died, in milliseconds. */
  sweepIntervalMs: number;
  /** When each clean-up job of the sweeper last succeeded in this process, by the monotonic clock, in milliseconds. */
  sweeps: Map<string, number>;
  /** The settings with which users grant an application access to MCP servers. */
  grants: CredentialContext['grants'];
  /** Records the decision on each request; `undefined` if the audit is off. */
  audit?: Audit | undefined;
  sockets: Sockets;
}

/** What features use: the context, and what all features together do, because none may import another. */
export interface FeatureContext extends Context {
  /** Names of the features that this process serves. */
  served: ReadonlySet<string>;
  /** Deletes what features store about deleted sessions, in the same transaction. */
  forgetSessions: SessionContext['forgetSessions'];
  copyArtifacts: SessionContext['copyArtifacts'];
  onImport: (tx: Database, user: User, tables: ReadonlySet<string>) => Promise<void>;
  userTables: readonly UserTable[];
  /** In the order in which an erasure deletes them. */
  userCopies: readonly UserCopies<FeatureContext>[];
}

export const FEATURES: readonly Feature<FeatureContext>[] = features;

/** The setting that a feature lacks to be served, as one writes it; `undefined` if it is served. */
export function missingSetting(
  { name, door, servedWith }: Feature<FeatureContext>,
  config: Config,
): string | undefined {
  if (door !== undefined) return config.doors.has(name) ? undefined : `\`${name}\` in DOORS`;
  return servedWith?.isSet(config) === false ? servedWith.setting : undefined;
}

export const USER_DATA: Pick<FeatureContext, 'userTables' | 'userCopies'> = {
  userTables: FEATURES.flatMap((feature) => feature.userTables ?? []),
  userCopies: FEATURES.toReversed().flatMap((feature) => feature.userCopies ?? []),
};

type All = Omit<FeatureContext, 'forgetSessions' | 'onImport'>;

export const createForgetSessions =
  (context: All): FeatureContext['forgetSessions'] =>
  async (tx, keys, options) => {
    for (const feature of FEATURES) await feature.forgetSessions?.(context as FeatureContext, tx, keys, options);
  };

export function toFeatureContext(context: Context): FeatureContext {
  const { config, contentStore, database } = context;
  const all: All = {
    ...context,
    ...USER_DATA,
    served: new Set(
      FEATURES.filter((feature) => missingSetting(feature, config) === undefined).map(({ name }) => name),
    ),
    copyArtifacts: (source, point, write) => copyArtifacts({ db: database.db, contentStore }, source, point, write),
  };
  const whole: FeatureContext = {
    ...all,
    forgetSessions: createForgetSessions(all),
    onImport: async (tx, user, tables) => {
      for (const feature of FEATURES) await feature.onImport?.(whole, tx, user, tables);
    },
  };
  return Object.assign(whole, ...FEATURES.map(({ provides }) => provides?.(whole))) as FeatureContext;
}
