import type { Response } from 'express';
import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { NEXT_CURSOR_HEADER, pageQuery, readTextCursor, toTextCursor } from '../../platform/http/operation/cursor.ts';
import { type Answer, type Operation, operation } from '../../platform/http/operation/operation.ts';
import { appPath, userPath } from '../../platform/http/operation/parameters.ts';

const DAY_MS = 86_400_000;
/** Maximum period of a usage report in days: a year. A report by hours covers at most a month. */
const MAX_DAYS = 366;
const MAX_DAYS_BY_HOUR = 31;
/** The end of the year 9999: JavaScript writes later dates in a format that PostgreSQL cannot read. */
const END_OF_TIME = Date.UTC(10_000, 0);
const GROUPS = ['user', 'model', 'version', 'day', 'hour'] as const;

const time = (description: string) => z.iso.datetime({ offset: true }).max(40).optional().describe(description);
const count = (description: string) => z.number().describe(description);
const usageQuery = pageQuery('rows').extend({
  from: time('Invocations requested from then on [30 days before `to`].'),
  to: time('Invocations requested before then [now].'),
  by: z
    .string()
    .max(40)
    .regex(/^((user|model|version|day|hour)(,|$))+$/, { abort: true })
    .default('day')
    .describe('What each row is of, of `user`, `model`, `version`, `day`, `hour` (UTC), with commas between.'),
  format: z.enum(['json', 'csv']).default('json').describe('`csv`: a table with a line of names.'),
});
const rowSchema = z
  .looseObject({
    period: z.string().optional().describe('Day or hour of UTC.'),
    userId: z.string().optional().describe('User.'),
    model: z
      .string()
      .optional()
      .describe(
        'Model as its provider names it. Absent: invocations and their time, calls that no stored event names.',
      ),
    version: z.string().optional().describe('The `agentVersion` of its invocations.'),
    invocations: count('Invocations that were requested.'),
    failed: count('Those of them that failed or were interrupted; cancelled ones are no failures.'),
    llmCalls: count('Model calls.'),
    promptTokens: count('Tokens that were sent to models.'),
    outputTokens: count('Answer and thought tokens.'),
    cost: count('Cost by the prices of now; absent where no model has one.').optional(),
    seconds: count('Seconds for which processes ran the invocations, without what these waited.'),
    scored: count('Scores of them that say passed or failed, of the whole sessions with the last invocation.'),
    passed: count('Those of them that passed.'),
    p95Seconds: count('Time that 95 of 100 of them took at most.').optional(),
  })
  .describe('A row of the report.');
type UsageRow = z.infer<typeof rowSchema>;
const COLUMNS = Object.keys(rowSchema.shape);
const exampleRow = {
  period: '2026-01-01',
  invocations: 2,
  failed: 0,
  llmCalls: 3,
  promptTokens: 900,
  outputTokens: 80,
  cost: 0.02,
  seconds: 4.2,
  scored: 2,
  passed: 1,
  p95Seconds: 2.6,
};
const reportSchema = z.looseObject({
  items: z.array(rowSchema).describe('Rows by period, user, model and version.'),
  nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
});

interface UsageContext {
  database: DatabasePool;
  now: () => number;
}

type ReportPath = typeof appPath | typeof userPath;

const reportOperation = (
  pathSchema: ReportPath,
  own: Pick<Operation, 'path' | 'operationId' | 'scope' | 'summary'> & { owner: 'service' | 'path' },
) =>
  operation<UsageContext, ReportPath, typeof usageQuery, z.ZodObject, z.ZodUndefined, z.ZodString>({
    ...own,
    area: 'Service and applications',
    method: 'get',
    load: 'heavy',
    description:
      'Sums over pages are those of `inspect.usage`, whatever the rows are by; rows of models those of ' +
      '`inspect.invocation_costs`. Deleted sessions are left out. How much is kept is at `getUserStorage`.',
    parameters: { path: pathSchema, query: usageQuery },
    success: {
      schema: z.string(),
      description: 'The report.',
      example: `${COLUMNS.join(',')}\r\n`,
      mediaType: 'text/csv',
      json: { schema: z.toJSONSchema(reportSchema, { io: 'input' }), example: { items: [exampleRow] } },
      headers: { 'X-Next-Cursor': 'As `nextCursor`, of a table.' },
    },
    errors: { 400: 'It ends before it begins, is of too long a time, or by both days and hours.' },
    handler: async (context, { path, query, response }) =>
      report(context, { p_app: path.appName, p_user: 'userId' in path ? path.userId : null }, query, response),
  });

const ofApp = reportOperation(appPath, {
  path: '/apps/{app_name}/usage',
  operationId: 'getUsage',
  scope: 'admin',
  summary: 'Report what the users of an application used',
  owner: 'service',
});
const ofUser = reportOperation(userPath, {
  path: '/apps/{app_name}/users/{user_id}/usage',
  operationId: 'getUserUsage',
  scope: 'read',
  summary: 'Report what a user used',
  owner: 'path',
});

export const usageOperations = [ofApp, ofUser];

async function report(
  { database, now }: UsageContext,
  whose: { p_app: string; p_user: string | null },
  query: z.output<typeof usageQuery>,
  response: Response,
): Promise<Answer> {
  const by = GROUPS.filter((each) => query.by.split(',').includes(each));
  const to = query.to === undefined ? now() * 1_000 : Date.parse(query.to);
  const from = query.from === undefined ? to - 30 * DAY_MS : Date.parse(query.from);
  const isByHour = by.includes('hour');
  const isKnown = from >= 0 && to < END_OF_TIME;
  if (
    !isKnown ||
    from >= to ||
    to - from > (isByHour ? MAX_DAYS_BY_HOUR : MAX_DAYS) * DAY_MS ||
    (isByHour && by.includes('day'))
  )
    throw new InvalidError(
      `A report is of a time since 1970, of at most ${MAX_DAYS} days, by days or hours; by hours of 31.`,
    );
  const rows = await findUsage(database.reads, {
    ...whose,
    p_from: new Date(from).toISOString(),
    p_to: new Date(to).toISOString(),
    p_by: by,
    p_after: readTextCursor(query.cursor, 4) ?? null,
    p_limit: query.limit + 1,
  });
  const items = rows.slice(0, query.limit);
  const last = rows.length > items.length ? items.at(-1) : undefined;
  const nextCursor = last && toTextCursor(getPlace(last));
  if (query.format === 'json') return { kind: 'value', value: { items, nextCursor } };
  if (nextCursor) response.setHeader(NEXT_CURSOR_HEADER, nextCursor);
  response.type('text/csv').send([COLUMNS, ...items.map(toCells)].map((cells) => `${cells.join(',')}\r\n`).join(''));
  return { kind: 'sent' };
}

const findUsage = async (db: Database, parameters: Record<string, unknown>): Promise<UsageRow[]> =>
  (await callFunction<{ rows: UsageRow[] }>(db, 'usage_report', parameters)).rows;

const getPlace = ({ period = '', userId = '', model = '', version = '' }: UsageRow) => [period, userId, model, version];

/** Converts a row to CSV cells. Adds a prefix to text that a spreadsheet program would run as a formula. */
const toCells = (row: UsageRow): string[] =>
  COLUMNS.map((name) => {
    const value = row[name];
    if (typeof value !== 'string') return value === undefined ? '' : JSON.stringify(value);
    return `"${(/^[=+\-@\t\r]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
  });
