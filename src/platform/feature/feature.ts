import type { SQL } from 'drizzle-orm';
import type { PgTable } from 'drizzle-orm/pg-core';
import type { z } from 'zod';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../db/database.ts';
import type { Operation, Wire } from '../http/operation/operation.ts';
import type { Pages } from '../http/operation/pages.ts';
import type { Aliases } from '../http/operation/paths.ts';

export type User = Pick<SessionKey, 'appName' | 'userId'>;
/** Numbers of rows by table. */
export type Counts = Record<string, number>;

type Member<Context, Name extends string> = Context extends Record<Name, infer Value> ? Value : unknown;

/**
 * A part of the service. `src/process/features.ts` lists all of them, and `src/process` loops over that list. A feature
 * below `src/features` is removed with its folder and its line in the list. `Context` is the part of the process that
 * the feature uses.
 */
export interface Feature<Context = never> {
  name: string;
  /** The protocol of a door. Its operations are on this wire, and are served if DOORS names the feature. */
  door?: Wire;
  /** Settings, by their heading in `docs/configuration.md`. */
  settings?: Record<string, Record<string, z.ZodType>>;
  /** @throws {ConfigError} if settings contradict each other. Only a process that listens checks them. */
  checkSettings?: (config: Member<Context, 'config'>) => void;
  /**
   * The setting without which `operations` and `pages` are not served, as one writes it; a request for them is answered
   * 404 with it. Default: they are always served.
   */
  servedWith?: { setting: string; isSet: (config: Member<Context, 'config'>) => boolean };
  operations?: readonly Operation<Context>[];
  /** Operations of the development UI mode. */
  devOperations?: readonly Operation<Context>[];
  aliases?: Aliases;
  /** Paths at which operations accept WebSockets. */
  sockets?: readonly string[];
  /** Schemas that the OpenAPI document defines once, by name. */
  schemas?: Record<string, z.ZodType>;
  /** Parameters that the document defines once. An operation refers to one by declaring this very schema. */
  parameters?: Record<string, z.ZodType>;
  pages?: (context: Context) => Pages;
  /** Pages of the development UI mode. */
  devPages?: (context: Context) => Pages;
  /** Limits of invocations that the feature's settings determine. */
  limits?: (config: Member<Context, 'config'>) => Partial<Member<Context, 'limits'>>;
  /** Adds to the context of all features and of invocations, before anything runs. */
  provides?: (context: Context) => Partial<Context>;
  /** Awaited at the start, before operations are served. @throws {ConfigError} */
  open?: (context: Context) => Promise<void>;
  /** Started once. Each runs until the process drains; one that the settings switch off returns at once. */
  workers?: readonly ((context: Context) => Promise<unknown> | undefined)[];
  sweeps?: readonly Sweep<Context>[];
  userTables?: readonly UserTable[];
  userCopies?: readonly UserCopies<Context>[];
  /** Called in the transaction of an import of a user, before the rows of these tables are inserted. */
  onImport?: (context: Context, tx: Database, user: User, tables: ReadonlySet<string>) => Promise<void>;
  /**
   * Deletes what quotes deleted sessions but is not part of them, in the transaction that deletes them. With `copiesToo`
   * also deliberate copies.
   */
  forgetSessions?: (
    context: Context,
    tx: Database,
    keys: readonly SessionKey[],
    options: { copiesToo: boolean },
  ) => Promise<void>;
}

/** A clean-up job. The jobs of a group run in sequence, in one process at a time (`src/process/sweeper.ts`). */
interface Sweep<Context> {
  group: SweepGroup;
  /** What the job does, for logs and for the state of the service. */
  name: string;
  run: (context: Context & { signal?: AbortSignal | undefined }) => Promise<unknown>;
}

export type SweepGroup = 'takeOver' | 'minutely' | 'erasures' | 'retention' | 'audit';

/** A table with columns `app_name` and `user_id`, and what export, import and erasure of a user do with its rows. */
export interface UserTable {
  table: PgTable;
  /**
   * `last`: after all other tables. `no`: the rows repeat others, can be computed again, or are secrets of this
   * service. Default: after the tables that it references.
   */
  exported?: 'last' | 'no';
  /** Conditions that divide the rows: those of the first stand first in an export, because others refer to them. */
  exportedParts?: readonly SQL[];
  /** True: the operator's. It is not exported, and only the system may delete its rows. */
  isOperators?: true;
  /** True: deletions cascade to other tables, so a statement deletes fewer rows. */
  cascades?: true;
  /** Schemas of columns that an import validates as a request, because other values would break the code that reads. */
  imported?: Record<string, z.ZodType>;
  /**
   * SQL for columns whose imported values are ignored, because these could continue work, confirm tool calls or forge
   * sizes. `r` is the imported row.
   */
  setByRuntime?: Record<string, string>;
  /** A column that only a caller with the scope `override` may import, and what such a row is. */
  needsOverride?: { column: string; what: string };
}

/** What other rows than the user's own contain of a user. It is erased before the user's tables. */
export interface UserCopies<Context> {
  count?: (db: Database, user: User) => Promise<Counts>;
  /** Deletes a batch. @returns the number of deleted rows by table; all zero if nothing is left */
  erase: (context: Context, user: User) => Promise<Counts>;
}
