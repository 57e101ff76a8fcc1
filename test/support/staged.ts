import { Pool } from 'pg';
import { afterAll, beforeAll } from 'vitest';

/** What `open` makes before the tests of the calling file or `describe`, and `close` ends after them. */
export function staged<T extends object>(
  open: () => Promise<T> | T,
  close: (made: T) => unknown = (made) => (made as { close(): unknown }).close(),
): T {
  let made: T | undefined;
  beforeAll(async () => {
    made = await open();
  });
  afterAll(async () => {
    if (made) await close(made);
  });
  return new Proxy({} as T, {
    get: (_, name) => {
      if (!made) throw new TypeError('what is staged exists from beforeAll on');
      const member: unknown = Reflect.get(made, name);
      return typeof member === 'function' ? (member.bind(made) as unknown) : member;
    },
  });
}

/** Connections to a database; what one query sets another one need not see. */
export const stagedSql = (database: { databaseUrl: string }): Pick<Pool, 'query'> =>
  staged(
    () => new Pool({ connectionString: database.databaseUrl }),
    (pool) => pool.end(),
  );
