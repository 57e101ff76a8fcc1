import { sql } from 'drizzle-orm';
import { z } from 'zod';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { getKey } from '../../platform/db/sql.ts';
import { pageQuery, placeById, readPage } from '../../platform/http/operation/cursor.ts';
import { area } from '../../platform/http/operation/area.ts';
import { appPath } from '../../platform/http/operation/parameters.ts';
import type { UserTable } from '../../platform/feature/feature.ts';
import { toNames } from './user-tables.ts';

/** Tables whose primary key starts with application and user, because in these an index finds the next user. */
const withIndex = (tables: readonly UserTable[]) => tables.filter(({ table }) => getKey(table)[1]?.name === 'user_id');

/** Sorts before every user id, but after the ids with a control character, which stand for budgets without a user. */
const NO_USER = '\u001f';

/** Lists the ids of users with any data in an application, sorted by code point, after the id `after`. */
async function findUsers(
  db: Database,
  tables: readonly UserTable[],
  appName: string,
  limit: number,
  after: string,
): Promise<string[]> {
  const { rows } = await db.execute<{ id: string }>(
    sql`select id from list_app_users(${toNames(tables)}, ${appName}, ${after}, ${limit}) id`,
  );
  return rows.map(({ id }) => id);
}

export interface ListContext {
  database: DatabasePool;
  agents: ReadonlyMap<string, HostedAgent>;
  userTables: readonly UserTable[];
}

const room = area<ListContext>('Service and applications', {
  read: 'admin',
  write: 'admin',
  owner: 'service',
  isForKeys: true,
  load: 'heavy',
});

export const listUsers = room.operation({
  method: 'get',
  path: '/apps/{app_name}/users',
  operationId: 'listUsers',
  summary: 'List the users of an application',
  description: 'All of whom it holds anything, by id. Also of an application that is served no more.',
  parameters: { path: appPath, query: pageQuery('users') },
  success: {
    schema: z
      .object({
        items: z.array(z.object({ userId: z.string().describe('User identifier.') })).describe('Those of this page.'),
        nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
      })
      .describe('A page of users.'),
    description: 'The users.',
    example: { items: [{ userId: 'u1' }] },
  },
  errors: { 404: 'No such application, nor users of a former one.' },
  absent: ({ appName }) => `App not found: ${appName}`,
  handler: async ({ database, agents, userTables }, { path: { appName }, query, notFound }) => {
    const value = await readPage(query, async (limit, after) => {
      const userIds = await findUsers(database.reads, withIndex(userTables), appName, limit, after?.id ?? NO_USER);
      if (userIds.length === 0 && !agents.has(appName)) throw notFound();
      return userIds.map((userId) => ({ userId, place: placeById(userId) }));
    });
    return { kind: 'value', value };
  },
});
