import type { Client } from 'pg';

const SCHEMAS = `(select oid from pg_namespace where nspname in ('public', 'inspect', 'inspect_outline'))`;

/**
 * What the dump is made of, in its order: each query gives rows `(place, text)`, from catalogues that PostgreSQL 15
 * to 18 share. PostgreSQL's own pg_dump is not among what comes with the embedded server.
 */
const PARTS = [
  `select nspname as place, format('create schema %I;', nspname) as text
   from pg_namespace where nspname like 'inspect%'`,
  // Of drizzle's journal, whose id is a serial; those of identities belong to their columns.
  `select oid::regclass::text as place, format('create sequence %s;', oid::regclass) as text
   from pg_class where relkind = 'S' and relnamespace in ${SCHEMAS}
     and not exists (select from pg_depend where objid = pg_class.oid and deptype = 'i')`,
  `select c.oid::regclass::text as place, format(E'create table %s (\\n%s\\n);', c.oid::regclass,
          string_agg(concat_ws(' ', '  ' || quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
              case when a.attcollation <> t.typcollation then 'collate ' || quote_ident(l.collname) end,
              'default ' || pg_get_expr(d.adbin, d.adrelid), case when a.attnotnull then 'not null' end),
            E',\\n' order by a.attnum)) as text
   from pg_class c
   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
   join pg_type t on t.oid = a.atttypid
   left join pg_collation l on l.oid = a.attcollation
   left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relkind = 'r' and c.relnamespace in ${SCHEMAS} group by c.oid`,
  // Behind the tables, whose rows some take.
  `select oid::regprocedure::text as place, rtrim(pg_get_functiondef(oid), E'\\n') || ';' as text
   from pg_proc where pronamespace in ${SCHEMAS}`,
  // Foreign keys last: they need the other table's key. PostgreSQL 18 lists "not null" here too (contype n).
  `select (contype = 'f') || conrelid::regclass::text || conname as place,
          format('alter table %s add constraint %I %s;', conrelid::regclass, conname, pg_get_constraintdef(oid)) as text
   from pg_constraint where contype <> 'n' and connamespace in ${SCHEMAS}`,
  `select i.indexrelid::regclass::text as place, pg_get_indexdef(i.indexrelid) || ';' as text
   from pg_index i join pg_class c on c.oid = i.indexrelid
   where c.relnamespace in ${SCHEMAS} and not exists (select from pg_constraint where conindid = i.indexrelid)`,
  `select tgrelid::regclass::text || tgname as place, pg_get_triggerdef(t.oid) || ';' as text
   from pg_trigger t join pg_class c on c.oid = tgrelid where not tgisinternal and c.relnamespace in ${SCHEMAS}`,
  `select c.oid::regclass::text as place,
          format(E'alter table %1$s enable row level security;\\nalter table %1$s force row level security;\\n'
                 'create policy %2$I on %1$s using (%3$s);',
                 c.oid::regclass, polname, pg_get_expr(polqual, polrelid)) as text
   from pg_policy p join pg_class c on c.oid = polrelid where c.relnamespace in ${SCHEMAS} and c.relforcerowsecurity`,
  `select oid::regclass::text as place,
          format(E'create view %s as\\n%s', oid::regclass, pg_get_viewdef(oid, true)) as text
   from pg_class where relkind = 'v' and relnamespace in ${SCHEMAS}`,
  `select place, format('comment on %s is %L;', place, description) as text from (
     select 'schema ' || nspname as place, obj_description(oid, 'pg_namespace') as description
     from pg_namespace where nspname like 'inspect%'
     union all select 'function ' || oid::regprocedure, obj_description(oid, 'pg_proc')
     from pg_proc where pronamespace in ${SCHEMAS}
     union all select format('%s %s', case relkind when 'v' then 'view' else 'table' end, oid::regclass),
                      obj_description(oid, 'pg_class')
     from pg_class where relkind in ('r', 'v') and relnamespace in ${SCHEMAS}
     union all select format('column %s.%I', c.oid::regclass, attname), col_description(c.oid, attnum)
     from pg_class c join pg_attribute on attrelid = c.oid and attnum > 0 and not attisdropped
     where relkind in ('r', 'v') and relnamespace in ${SCHEMAS}) commented
   where description is not null`,
];

/** The schema of a database as SQL that would make it again: one statement a paragraph, in an order of its own. */
export async function dumpSchema(client: Client): Promise<string> {
  const parts: string[] = [];
  for (const part of PARTS) {
    // Compared by code point, whatever the locale of the database.
    const { rows } = await client.query<{ text: string }>(`select text from (${part}) p order by place collate "C"`);
    parts.push(rows.map(({ text }) => text).join(part.includes('comment on') ? '\n' : '\n\n'));
  }
  return parts.filter(Boolean).join('\n\n');
}
