import { and, sql } from 'drizzle-orm';
import { z } from 'zod';
import { CHANGED, hasVersion, ifMatch, toChangeError, toVersions } from './precondition.ts';
import { session } from './session-context.ts';
import { isSession } from './session-row.ts';
import { rowVersion } from './session-text.ts';
import { NotFoundError, TooLargeError } from '../../core/errors.ts';
import { nameError, type SessionKey, sessionNotFound } from '../../core/session.ts';
import { textFormat } from '../../core/text-format.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { jsonTextOf } from '../../platform/db/sql.ts';

export const MAX_LABELS = 32;
/** Maximum size of a session's labels, in bytes of JSON. */
const MAX_LABELS_BYTES = 8_192;
const NAME = '[A-Za-z0-9][A-Za-z0-9._/-]{0,62}';
/**
 * A label's value in a filter. Unlike a new value it may be empty or of an old format, which stored labels may have.
 */
const VALUE = '[^\\x00-\\x1f\\x7f]{0,256}';

const labelName = z
  .string()
  .regex(new RegExp(`^${NAME}$`), { abort: true })
  .refine((name) => nameError(name) === undefined, '`.` and `..` are not allowed between slashes');
const labelValue = textFormat(
  'label-value',
  (text) =>
    text.isWellFormed() && !/[\u2028\u2029]/.test(text)
      ? undefined
      : 'line separators and lone surrogates are not allowed',
  z.string().regex(/^[^\x00-\x1f\x7f-\x9f]{0,256}$/u, { abort: true }),
);

const labelMap = <Value extends z.ZodType>(value: Value) =>
  z
    .record(labelName, value)
    .meta({ maxProperties: MAX_LABELS })
    .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `at most ${MAX_LABELS} labels are allowed`);

const labelChangesSchema = labelMap(labelValue.nullable()).describe(
  'Labels by name: a string sets one, null removes it, others stay.',
);

export const newLabelsSchema = labelMap(labelValue).refine(
  (labels) => Buffer.byteLength(JSON.stringify(labels)) <= MAX_LABELS_BYTES,
  `at most ${MAX_LABELS_BYTES} bytes are allowed`,
);

const labelsSchema = z.record(z.string(), z.string()).describe('The labels, by name.');

/** A label condition in a query: `name=value`, or `name` for a label with any value. */
export const labelCondition = textFormat(
  'label-condition',
  (text) => (text.isWellFormed() ? undefined : 'lone surrogates are not allowed'),
  z.string().regex(new RegExp(`^${NAME}(?:=${VALUE})?$`, 'u'), { abort: true }),
);

/** A filter by labels: required `{name: value}` pairs, and names of labels that may have any value. */
export interface LabelChoice {
  values: Record<string, string>[];
  names: string[];
}

export function toLabelChoice(conditions: readonly string[]): LabelChoice {
  const choice: LabelChoice = { values: [], names: [] };
  for (const text of conditions) {
    const end = text.indexOf('=');
    if (end < 0) choice.names.push(text);
    else choice.values.push({ [text.slice(0, end)]: text.slice(end + 1) });
  }
  return choice;
}

/** A session's labels as JSON, with the session's version and creation time. */
export interface SessionLabels {
  text: string;
  version: string;
  createTime: number;
}

// `at time zone` makes the expression immutable; a distributed database requires that in `returning`.
const createTime = sql<number>`extract(epoch from ${sessions.createTime} at time zone 'UTC')::float8`;
const columns = { text: jsonTextOf(sessions.labels), version: rowVersion(sessions), createTime };

export async function findLabels(db: Database, key: SessionKey): Promise<SessionLabels | undefined> {
  const [row] = await db.select(columns).from(sessions).where(isSession(key, sessions));
  return row;
}

/**
 * A single statement sets the labels that have a value, removes those that are null, and renews the session's update
 * time.
 * @throws {NotFoundError} if the session does not exist
 * @throws {TooLargeError} if the labels would exceed their limits
 * @throws {PreconditionFailedError} if the session has none of the `versions`
 */
export async function changeLabels(
  db: Database,
  key: SessionKey,
  changes: Record<string, string | null>,
  versions?: string[],
): Promise<SessionLabels> {
  const entries = Object.entries(changes);
  const set = Object.fromEntries(entries.filter(([, value]) => value !== null));
  const removed = entries.filter(([, value]) => value === null).map(([name]) => name);
  const labels = sql`((${sessions.labels} || ${sql.param(set, sessions.labels)}::jsonb) - ${sql.param(removed)}::text[])`;
  const isAllowed = sql`octet_length(${labels}::text) <= ${MAX_LABELS_BYTES}
    and (select count(*) from jsonb_object_keys(${labels})) <= ${MAX_LABELS}`;
  const [row] = await db
    .update(sessions)
    .set({ labels, updateTime: sql`next_time(${sessions.updateTime}, statement_timestamp())` })
    .where(and(isSession(key, sessions), isAllowed, hasVersion(sessions, versions)))
    .returning(columns);
  if (row) return row;
  const current = await findLabels(db, key);
  if (!current) throw new NotFoundError(sessionNotFound(key.sessionId));
  if (versions && !versions.includes(current.version)) throw await toChangeError(db, key);
  throw new TooLargeError(`A session has at most ${MAX_LABELS} labels, ${MAX_LABELS_BYTES} bytes together.`);
}

const success = { schema: labelsSchema, description: 'All labels of the session.', example: { project: 'atlas' } };

const getLabels = session.action('labels')({
  method: 'get',
  operationId: 'getSessionLabels',
  summary: "Get a session's labels",
  success,
  handler: async ({ database }, { path, response, notFound }) => {
    const found = await findLabels(database.reads, path);
    if (!found) throw notFound();
    response.setHeader('etag', `"${found.version}"`);
    return { kind: 'json', text: found.text };
  },
});

const updateLabels = session.action('labels')({
  method: 'patch',
  operationId: 'updateSessionLabels',
  summary: "Change a session's labels",
  description:
    'Names and values for the client to find sessions by; agents do not see them. `lastUpdateTime` moves. A session ' +
    `has at most ${MAX_LABELS}, ${MAX_LABELS_BYTES} bytes together.`,
  headers: ifMatch,
  body: { schema: labelChangesSchema, example: { project: 'atlas', draft: null } },
  success,
  errors: { 412: CHANGED, 413: 'The labels would be too many or too large together.' },
  handler: async ({ database }, { path, body, headers, response }) => {
    const { text, version } = await changeLabels(database.db, path, body, toVersions(headers['if-match']));
    response.setHeader('etag', `"${version}"`);
    return { kind: 'json', text };
  },
});

export const labelOperations = [getLabels, updateLabels];
