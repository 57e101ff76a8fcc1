import { readTableMigrations } from '../../src/platform/db/migrate.ts';
import { readSections } from '../../src/platform/db/repeatable.ts';

export const MIGRATIONS = new URL('../../migrations/', import.meta.url);

/** The names of everything that the migrator applies to an empty database, in its order. */
export const listMigrations = (): string[] => [
  ...readTableMigrations(MIGRATIONS).map(({ name }) => name),
  ...new Set(readSections(MIGRATIONS, false).map(({ file }) => file)),
];
