import { createHash } from 'node:crypto';
import { sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { loadArtifact } from '../../conversation/artifacts/artifacts.ts';
import type { ContentStore } from '../../conversation/artifacts/artifact.ts';
import { ForbiddenError, InvalidError, isPassingFailure } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../core/parse-json.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { sqlState } from '../../platform/db/client.ts';
import { UNREAD_TIME } from '../../invocations/invocation-store.ts';
import { countEvents, hasTrees } from '../../conversation/sessions/user-data-store.ts';
import {
  type ExportedRow,
  type ImportedContent,
  insertRows,
  listRows,
  type PlacedTable,
  placeTables,
} from './user-tables.ts';
import type { User, UserTable } from '../../platform/feature/feature.ts';

export interface ExportContext {
  database: DatabasePool;
  contentStore: ContentStore;
  onImport: (tx: Database, user: User, tables: ReadonlySet<string>) => Promise<void>;
  userTables: readonly UserTable[];
}

/** Identifies the format, in the first line of an export. */
const EXPORT_KIND = 'agent-runtime user export';
/** Increases when an earlier export could no longer be imported. Version 1 was written before the first release. */
const VERSION = 2;

/** Tables in the order of an export: those that a table references stand before it. */
function listExported(tables: readonly UserTable[]): PlacedTable[] {
  const exported = placeTables(tables).filter((each) => each.exported !== 'no' && !each.isOperators);
  return exported.toSorted((one, other) => Number(one.exported === 'last') - Number(other.exported === 'last'));
}

/**
 * JSON Lines of an export: header, the rows of each table (referenced tables first), and a trailer with their number.
 * Only a page of rows, or an artifact, is in memory at a time.
 */
export async function* exportUser(context: ExportContext, user: User): AsyncGenerator<string> {
  const { database } = context;
  yield `${JSON.stringify({ kind: EXPORT_KIND, version: VERSION, ...user })}\n`;
  let lines = 0;
  for (const table of listExported(context.userTables)) {
    for (const part of table.exportedParts ?? [sql`true`]) {
      for (let after: ExportedRow['place'] | undefined, isMore = true; isMore; ) {
        const rows = await listRows(database.reads, user, table, part, after);
        for (const row of rows) {
          const bytes = table.name === 'artifact_versions' ? await toContentMember(context, user, row) : '';
          yield `{"table":"${table.name}","row":${row.text}${bytes}}\n`;
        }
        lines += rows.length;
        after = rows.at(-1)?.place;
        isMore = after !== undefined && after.length > 0;
      }
    }
  }
  yield `${JSON.stringify({ kind: 'end', lines })}\n`;
}

async function toContentMember({ database, contentStore }: ExportContext, user: User, { place }: ExportedRow) {
  const [sessionId, artifactName, version] = place as [string, string, number];
  const loaded = await loadArtifact(database.reads, contentStore, { ...user, sessionId, artifactName }, version);
  return loaded?.bytes ? `,"content":"${loaded.bytes.toString('base64')}"` : '';
}

/** Rows of a table that the same statement inserts. */
interface Batch {
  table: PlacedTable;
  /** Numbers of the batch's first and last line in the request body. Blank lines are not counted. */
  first: number;
  last: number;
  members: string[];
  texts: string[];
  sessions: string[];
  bytes?: ImportedContent;
}

/**
 * Imports an export as data of any user. Existing rows stay unchanged. No imported work is continued:
 * invocations get the status "interrupted", cronjobs are disabled, deliveries are not sent.
 * @throws {InvalidError} if a line is not part of an export
 */
export async function importLines(
  { database, contentStore, onImport, userTables }: ExportContext,
  user: User,
  text: string,
  mayOverride: boolean,
): Promise<{ imported: number; present: number }> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const tables = new Map(listExported(userTables).map((table) => [table.name, table]));
  const batches: Batch[] = [];
  const insert = async () => {
    for (const [index, line] of lines.entries())
      addBatch(batches, await toBatch(contentStore, tables, line, index + 1, mayOverride));
    return database.transaction(async (tx) => {
      await onImport(tx, user, new Set(batches.map(({ table }) => table.name)));
      return insertBatches(tx, user, batches);
    });
  };
  const { imported, unused } = await insert().catch(async (error: unknown) => {
    // Uploaded files are kept after a transient error, because the commit may have succeeded and rows reference them.
    if (!isPassingFailure(error)) await contentStore.remove(batches.flatMap(({ bytes }) => bytes?.objectKey ?? []));
    throw error;
  });
  // Removes files uploaded for versions that already existed: no row references them, so an erasure would not find
  // them.
  await contentStore.remove(unused);
  return { imported, present: batches.reduce((sum, { texts }) => sum + texts.length, 0) - imported };
}

function addBatch(batches: Batch[], batch: Batch | undefined): void {
  const last = batches.at(-1);
  if (!batch) return;
  if (last && !batch.bytes && last.table === batch.table && last.members.join() === batch.members.join()) {
    last.last = batch.last;
    last.texts.push(...batch.texts);
    last.sessions.push(...batch.sessions);
  } else batches.push(batch);
}

/** SQLSTATEs of a refused row: invalid values (42601 from full-text search), constraints, oversized index keys. */
const REFUSED = /^(?:22|23|54|42601)/;

async function insertBatches(tx: Database, user: User, batches: Batch[]) {
  let imported = 0;
  const unused: string[] = [];
  for (const { table, first, last, members, texts, sessions, bytes } of batches) {
    const inserted = await insertRows(tx, user, table, members, texts, bytes).catch((error: unknown) => {
      if (!REFUSED.test(sqlState(error)?.code ?? '')) throw error;
      const where = first === last ? `Line ${first} is` : `Lines ${first} to ${last} are`;
      throw new InvalidError(`${where} not what the table ${table.name} takes.`, { cause: error });
    });
    imported += inserted;
    if (inserted === 0 && bytes?.objectKey) unused.push(bytes.objectKey);
    // Recounts the events of the sessions, because the rows of sessions are imported before their events.
    if (table.name === 'sessions' && !(await hasTrees(tx, user)))
      throw new InvalidError(`Lines ${first} to ${last} have a child session that is not below its parent.`);
    if (table.name === 'events') await countEvents(tx, user, [...new Set(sessions)]);
  }
  return { imported, unused };
}

async function toBatch(
  contentStore: ContentStore,
  tables: ReadonlyMap<string, PlacedTable>,
  line: string,
  number: number,
  mayOverride: boolean,
): Promise<Batch | undefined> {
  const parsed = readLine(line, number);
  if (parsed?.kind === EXPORT_KIND && parsed.version !== VERSION)
    throw new InvalidError(
      `Line ${number}: the export has the format ${JSON.stringify(parsed.version)}, and this service reads ${VERSION}. ` +
        'Import it with the release that wrote it, or export again with this one.',
    );
  if (parsed?.kind !== undefined) return undefined;
  const { table: name, row, content } = parsed ?? {};
  const table = tables.get(name ?? '');
  if (!table || typeof row !== 'object' || row === null) throw notALine(number);
  if (content !== undefined && typeof content !== 'string') throw notALine(number);
  if (!('app_name' in row && 'user_id' in row)) throw notALine(number);
  const wrong = Object.values(table.columns).find((column) => isNoTime(column, row[column.name]));
  if (wrong) throw new InvalidError(`Line ${number}: ${wrong.name} is no time of the years 1 to 9999.`);
  for (const [column, schema] of Object.entries(table.imported ?? {})) {
    const isRight = !(column in row) || schema.safeParse(row[column]).success;
    if (!isRight) throw new InvalidError(`Line ${number}: ${column} is not what the service writes there.`);
  }
  const sessionId = row['session_id'];
  const { needsOverride } = table;
  if (needsOverride && row[needsOverride.column] != null && !mayOverride)
    throw new ForbiddenError(`Line ${number} is ${needsOverride.what}: that needs \`override\`.`);
  const batch = { table, first: number, last: number, members: Object.keys(row), texts: [rowText(line)] };
  const sessions = typeof sessionId === 'string' ? [sessionId] : [];
  if (content === undefined) return { ...batch, sessions };
  const bytes = Buffer.from(content, 'base64');
  const object = await contentStore.save(bytes);
  const place = { content: object ? null : bytes, objectKey: object?.key ?? null };
  const sha256 = createHash('sha256').update(bytes).digest();
  return { ...batch, sessions, bytes: { ...place, sizeBytes: bytes.length, sha256 } };
}

/** Matches valid times. PostgreSQL also accepts others (`infinity`), which would break every list of such rows. */
const TIME = /^(?!0000)\d{4}-\d\d-\d\dT/;
const isNoTime = (column: AnyPgColumn, value: unknown): boolean =>
  column.getSQLType().startsWith('timestamp') &&
  column.name !== UNREAD_TIME &&
  value !== undefined &&
  value !== null &&
  !(typeof value === 'string' && TIME.test(value));

/** Returns the row in a line of an export, as the original JSON text, because parsed numbers would lose digits. */
function rowText(line: string): string {
  const start = line.indexOf('"row":') + '"row":'.length;
  const end = /^(.*\})(?:,"content":"[A-Za-z0-9+/=]*")?\}\s*$/s.exec(line)?.[1]?.length ?? line.length;
  return line.slice(start, end);
}

type Line = {
  kind?: string;
  version?: unknown;
  table?: string;
  row?: Record<string, unknown> | null;
  content?: unknown;
} | null;

function readLine(line: string, number: number): Line {
  try {
    return parseJson(Buffer.from(line), INPUT_LIMITS.lineOfAnImport, { exact: false }) as Line;
  } catch (error) {
    const isTooMuch = error instanceof JsonRefusedError && error.kind !== 'syntax';
    throw isTooMuch ? new InvalidError(`Line ${number} ${error.message}.`) : notALine(number);
  }
}

const notALine = (number: number) => new InvalidError(`Line ${number} is none of an export of a user.`);
