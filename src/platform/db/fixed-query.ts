import pg, { type Connection, type CustomTypesConfig, type Submittable } from 'pg';
import { type LargeText, takeBytes } from './row-bytes.ts';
import { WITH_LARGE_TEXT, WITH_TIMES_AS_TEXT } from './value-types.ts';

/** What node-postgres has beside its published types (pg 8.23.1): how it writes values. */
const { prepareValue } = (pg as unknown as { utils: { prepareValue: (value: unknown) => string | Buffer | null } })
  .utils;

/** The part of node-postgres's connection that sends messages of the extended protocol. */
interface Wire {
  stream: { cork(): void; uncork(): void };
  /** Texts of the prepared statements of the connection, by name; the client notes those that were parsed. */
  parsedStatements: Record<string, string>;
  parse(message: { text: string; name: string }): void;
  bind(message: { statement: string; values: unknown[] }): void;
  describe(message: { type: 'P'; name: string }): void;
  execute(message: object): void;
  sync(): void;
}

interface Column {
  name: string;
  parse: (text: unknown) => unknown;
}

const NO_COLUMNS: Column[] = [];

/** Columns of the prepared statements of each connection, by name. */
const known = new WeakMap<Wire, Map<string, Column[]>>();

/** A statement as {@link FixedQuery} takes it: its columns are read by `types`, always the same ones. */
export interface FixedStatement {
  text: string;
  values?: unknown[];
  types?: CustomTypesConfig;
}

/** Rows, or why there are none. */
type Done = (error: Error | undefined, result?: { rows: unknown[] }) => void;

/**
 * A statement of one text and one plan, for node-postgres's client. Its columns are asked for with its first use on a
 * connection only: PostgreSQL refuses a prepared statement whose columns have changed since. node-postgres asks each
 * time, and makes its readers of eight columns anew.
 */
export class FixedQuery implements Submittable {
  readonly name: string;
  readonly text: string;
  /** For the client, which would return a promise of its own without it. */
  readonly callback = (): void => undefined;
  /** Absent after its call. */
  #done: Done | undefined;
  readonly #values: unknown[];
  readonly #types: CustomTypesConfig;
  #rows: unknown[] = [];
  #columns: Column[] | undefined;
  #connection: Wire | undefined;
  #error: unknown;

  constructor(name: string, { text, values = [], types = WITH_TIMES_AS_TEXT }: FixedStatement, done: Done) {
    this.name = name;
    this.text = text;
    this.#values = values.map((value) => prepareValue(value));
    this.#types = types;
    this.#done = done;
  }

  submit(connection: Connection): void {
    const wire = connection as unknown as Wire;
    this.#connection = wire;
    if (this.#types === WITH_LARGE_TEXT) takeBytes(connection);
    this.#columns = known.get(wire)?.get(this.name);
    // One write for all messages.
    wire.stream.cork();
    if (wire.parsedStatements[this.name] === undefined) wire.parse(this);
    wire.bind({ statement: this.name, values: this.#values });
    if (!this.#columns) wire.describe({ type: 'P', name: '' });
    wire.execute({});
    wire.sync();
    wire.stream.uncork();
  }

  handleRowDescription({ fields }: { fields: { name: string; dataTypeID: number }[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: this.#types.getTypeParser(dataTypeID, 'text') as Column['parse'],
    }));
  }

  handleDataRow({ fields }: { fields: (string | LargeText | null)[] }): void {
    const row: Record<string, unknown> = {};
    try {
      for (const [index, { name, parse }] of (this.#columns ?? NO_COLUMNS).entries()) {
        const text = fields[index] ?? null;
        row[name] = text === null ? null : parse(text);
      }
    } catch (error) {
      this.#error ??= error;
    }
    this.#rows.push(row);
  }

  handleCommandComplete(): void {
    if (!this.#connection || known.get(this.#connection)?.has(this.name)) return;
    const columns = known.get(this.#connection) ?? new Map<string, Column[]>();
    known.set(this.#connection, columns.set(this.name, this.#columns ?? NO_COLUMNS));
  }

  handleReadyForQuery(): void {
    if (this.#error === undefined) this.#end(undefined, { rows: this.#rows });
    else this.handleError(this.#error as Error);
  }

  /** Also for the time-out; what comes after it counts for nothing. */
  handleError(error: Error): void {
    this.#end(error);
  }

  #end(error: Error | undefined, result?: { rows: unknown[] }): void {
    const done = this.#done;
    this.#done = undefined;
    this.#rows = [];
    done?.(error, result);
  }
}
