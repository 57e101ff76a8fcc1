import { pgSchema, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, timeOfChange } from './columns.ts';
import { table } from './table.ts';

/** The schemas of the views in `migrations/repeatable/`; in another schema of tables they have other names. */
export const inspectSchema = pgSchema('inspect');
export const outlineSchema = pgSchema('inspect_outline');

export const repeatables = table(
  'agent_runtime_repeatables',
  'The sections of migrations/repeatable/ that this schema has; a start applies those whose hash is absent.',
  (c) => ({
    file: identifier('file').notNull().comment('Name of the file; comments for those of tables and columns.'),
    hash: c.text('hash').notNull().comment('SHA-256 of the section.'),
    version: c.text('version').notNull().comment('Version of the service that applied it.'),
    applyTime: timeOfChange('apply_time').comment('When it was applied.'),
  }),
  (t) => [primaryKey({ name: 'agent_runtime_repeatables_pkey', columns: [t.file, t.hash] })],
);
