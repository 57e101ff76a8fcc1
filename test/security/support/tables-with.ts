import type { Pool } from 'pg';

/** The tables in which a word stands, as text or as bytes. */
export async function tablesWith(client: Pick<Pool, 'query'>, word: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'public' and c.relkind = 'r' order by 1`,
  );
  const hex = Buffer.from(word).toString('hex');
  const found: string[] = [];
  for (const { name } of rows) {
    const sought = [`%${word}%`, `%${hex}%`];
    const { rowCount } = await client.query(`select from ${name} t where t::text like any($1) limit 1`, [sought]);
    if (rowCount !== 0) found.push(name);
  }
  return found;
}
