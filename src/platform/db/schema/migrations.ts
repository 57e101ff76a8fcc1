import { pgSchema, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, timeOfChange } from './columns.ts';
import { table } from './table.ts';

/** The schemas of the views in `migrations/repeatable/`; in another schema of tables they have other names. */
export const inspectSchema = pgSchema('inspect');
export const outlineSchema = pgSchema('inspect_outline');

export const repeatables = table(
  'agent_runtime_repeatables',
  'What sections of migrations/repeatable/ have made in this schema; a start applies those that have changed.',
  (c) => ({
    name: identifier('name')
      .notNull()
      .comment('Kind and name of a function, trigger or view; the file of a section that makes none.'),
    hash: c.text('hash').notNull().comment('SHA-256 of the section that made it.'),
    version: c.text('version').notNull().comment('Version of the service that applied the section.'),
    applyTime: timeOfChange('apply_time').comment('When the section was applied.'),
  }),
  (t) => [primaryKey({ name: 'agent_runtime_repeatables_pkey', columns: [t.name] })],
);
