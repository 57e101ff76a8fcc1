import { existsSync, readdirSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/** Said where there is none; Debian's packages are `postgresql` and `postgresql-client`. */
export const NO_PROGRAMS =
  'skipped: pg_dump and the server beside it are neither in POSTGRES_BIN, on PATH nor below /usr/lib/postgresql';

const NEEDED = ['initdb', 'pg_ctl', 'pg_dump', 'pg_restore'];
const DEBIAN = '/usr/lib/postgresql';

/**
 * The directory above `bin` of an installed PostgreSQL with its client programs: of `POSTGRES_BIN`, on PATH, or where
 * Debian puts them. The server that the service brings has no client programs, and pg_dump takes no newer server.
 */
export function findPostgresPrograms(): string | undefined {
  const named = process.env['POSTGRES_BIN'];
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).toSorted((a, b) => Number(b) - Number(a)) : [];
  const places = [
    ...(named ? [named] : (process.env['PATH'] ?? '').split(delimiter).filter(Boolean)),
    ...versions.map((version) => join(DEBIAN, version, 'bin')),
  ];
  const bin = places.find((place) => NEEDED.every((program) => existsSync(join(place, program))));
  return bin === undefined ? undefined : dirname(bin);
}
