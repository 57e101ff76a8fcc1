import { COPIED_TABLES, DISTRIBUTED_TABLES } from '../../src/platform/db/cluster.ts';

/** A pattern for what a statement may not have there; `within` narrows the looks to parts of the text. */
interface Rule {
  name: string;
  pattern: RegExp;
  within?: RegExp;
}

const VOLATILE = /\b(?:clock_timestamp|timeofday|gen_random_uuid|random|nextval|pg_notify|pg_advisory\w*)\s*\(/i;
const STABLE =
  /\b(?:statement_timestamp|transaction_timestamp|now|to_char|to_tsvector|to_jsonb?|jsonb?_build_\w+)\s*\(/i;

/** Rules for an `update` or `delete`, up to the end of its CTE. */
const IN_WRITE: Rule[] = [
  { name: 'a volatile function', pattern: VOLATILE },
  { name: 'a setting of the connection, which workers do not have', pattern: /\bcurrent_setting\s*\(/i },
  {
    name: 'a column and an interval: the sum with a time in a zone is not immutable',
    pattern: /"\s*[+-]\s*(?:interval|\$\d+ \*)/i,
  },
  {
    name: 'the time of the statement in a case or coalesce',
    pattern: STABLE,
    within: /\bcase\b.*?\bend\b|\bcoalesce\((?:[^()]|\([^()]*\))*\)/gis,
  },
];
/** Rules for what an insert does on a conflict. */
const AFTER_CONFLICT: Rule[] = [
  ...IN_WRITE,
  { name: 'a function that is not immutable', pattern: STABLE },
  { name: 'a query', pattern: /\bselect\b/i },
];

/**
 * Why a distributed database (Citus) would refuse a statement that the service makes, each with the table that it
 * writes into; empty where it takes it. Only writes into tables that other nodes have are looked at.
 */
export function dialectFaults(statement: string): string[] {
  const text = statement.replaceAll(/--.*$/gm, '').replaceAll(/'(?:[^']|'')*'/g, `''`);
  const found = [...text.matchAll(/\b(update|delete from|insert into)\s+"(\w+)"/gi)];
  return found.flatMap(({ 1: verb = '', 2: table = '', index }) => {
    if (!COPIED_TABLES.includes(table) && !DISTRIBUTED_TABLES.includes(table)) return [];
    const part = toEndOfCte(text.slice(index));
    const isInsert = verb.toLowerCase() === 'insert into';
    const looked = isInsert ? (/\bon conflict\b(.*?)(?:\breturning\b|$)/is.exec(part)?.[1] ?? '') : part;
    const values = isInsert ? /^[^)]*\)\s*values\b(.*?)(?:\bon conflict\b|$)/is.exec(part)?.[1] : undefined;
    if (values && /\bselect\b/i.test(values)) return [`${table}: a query among the values`];
    return (isInsert ? AFTER_CONFLICT : IN_WRITE)
      .filter(({ pattern, within }) =>
        (within ? (looked.match(within) ?? []) : [looked]).some((at) => pattern.test(at)),
      )
      .map(({ name }) => `${table}: ${name}`);
  });
}

/** A table that a statement reads or writes, and the name that it has there. */
const OCCURRENCE = /\b(?:from|join|using|update)\s+"(\w+)"(?!\.)(?:\s+(?:as\s+)?"(\w+)")?/gi;
/** A table that is given the user by value: that leads to one node. */
const GIVEN_USER = /"(\w+)"\."user_id" = \$\d+/g;

/**
 * Tables of a statement for one user that are not given that user by value, but by a column of another table or not at
 * all: a distributed database would ask all its nodes for them. Statements for all users name none and are left alone.
 */
export function routingFaults(statement: string): string[] {
  const text = statement.replaceAll(/--.*$/gm, '').replaceAll(/'(?:[^']|'')*'/g, `''`);
  const given = countBy([...text.matchAll(GIVEN_USER)].map(([, name = '']) => name));
  if (given.size === 0) return [];
  const tables = [...text.matchAll(OCCURRENCE)].filter(([, table = '']) => DISTRIBUTED_TABLES.includes(table));
  const found = countBy(tables.map(([, table = '', name = table]) => name));
  return [...found]
    .filter(([name, times]) => (given.get(name) ?? 0) < times)
    .map(([name, times]) => `"${name}" stands there ${times} times, and has a user ${given.get(name) ?? 0} times`);
}

const LOCK = /\bfor (?:no key )?update\b|\bfor (?:key )?share\b/gi;
const AGGREGATE = /\b(?:count|sum|min|max|avg|bool_(?:or|and)|(?:string|array|jsonb?)_agg)\s*\(/i;

/**
 * Why a distributed database would refuse a statement of the service, or lose a part of what it does, because its tables
 * are spread over nodes; empty where it takes it.
 */
export function spreadFaults(statement: string): string[] {
  const text = statement.replaceAll(/--.*$/gm, '').replaceAll(/'(?:[^']|'')*'/g, `''`);
  return [
    ...[...text.matchAll(LOCK)].flatMap(({ index }) =>
      listUngiven(querySurrounding(text, index)).map((name) => `${name}: a lock of rows without their user`),
    ),
    ...(/\bwith recursive\b/i.test(text) ? listUngiven(text).map((name) => `${name}: a recursion without a user`) : []),
    ...(mixesNodes(text)
      ? [...text.matchAll(/\bexists\s*\(\s*select\s+from\s+"(\w+)"(?:\s+(?!where\b)"?(\w+)"?)?/gi)]
      : []
    )
      .filter(([start, table = '', name = table]) => isAlone(text, start, name))
      .map(([, table = '']) => `${table}: a query by itself that has no columns`),
    ...aggregateFaults(text),
    ...[...text.matchAll(/\bupdate\s+"invocations"(.*?)\bwhere\b/gis)].flatMap(({ 1: set = '', index }) =>
      /"status" =/.test(set) && listUngiven(toEndOfCte(text.slice(index))).includes('invocations')
        ? ['invocations: ends of several users, whose triggers cannot reach the coordinator']
        : [],
    ),
  ];
}

/** True if a statement reads tables that are spread and tables of the coordinator: it then reads in several steps. */
const mixesNodes = (text: string): boolean => {
  const tables = [...text.matchAll(OCCURRENCE)].map(([, table = '']) => table);
  const isSpread = (table: string) => DISTRIBUTED_TABLES.includes(table);
  return tables.some(isSpread) && tables.some((table) => !isSpread(table) && !COPIED_TABLES.includes(table));
};

/** True if a query, which begins with `start`, names columns of its own table alone, so that it is a step by itself. */
function isAlone(text: string, start: string, name: string): boolean {
  const query = toEndOfCte(text.slice(text.indexOf(start) + start.indexOf('(') + 1));
  return [...query.matchAll(/\b(\w+)"?\./g)].every(([, named]) => named === name);
}

/** An aggregate over all users beside a query: nodes could not put their parts together. */
function aggregateFaults(text: string): string[] {
  const [, list = '', rest = ''] = /^\s*select\b(.*?)\bfrom\s+"(.*)$/is.exec(withoutInner(text)) ?? [];
  const isAggregate = AGGREGATE.test(list) && /\(\s*select\b/i.test(text.slice(0, text.length - rest.length));
  const first = /^(\w+)"/.exec(rest)?.[1] ?? '';
  return isAggregate && listUngiven(text).includes(first) ? [`${first}: an aggregate of all users beside a query`] : [];
}

/** The text without what stands in parentheses. */
function withoutInner(text: string): string {
  let depth = 0;
  let kept = '';
  for (const sign of text) {
    if (sign === ')') depth--;
    if (depth === 0 || (depth === 1 && sign === '(')) kept += sign;
    if (sign === '(') depth++;
  }
  return kept;
}

/** The query in which a place of a text stands, up to the parentheses around it. */
function querySurrounding(text: string, place: number): string {
  let depth = 0;
  let start = place;
  while (start > 0 && depth >= 0) {
    start--;
    if (text[start] === ')') depth++;
    if (text[start] === '(') depth--;
  }
  return toEndOfCte(text.slice(depth < 0 ? start + 1 : start));
}

const listSpread = (text: string) =>
  [...text.matchAll(OCCURRENCE)].filter(([, table = '']) => DISTRIBUTED_TABLES.includes(table));

/** The spread tables of a query that are not given their user by value. */
function listUngiven(text: string): string[] {
  const given = new Set([...text.matchAll(GIVEN_USER)].map(([, name = '']) => name));
  return listSpread(text).flatMap(([, table = '', name = table]) => (given.has(name) ? [] : [table]));
}

/** A function of the migrations, and its body without comments and texts in quotes. */
const FUNCTION = /^create or replace function (\w+)(.*?)(?=^create or replace |^do \$\$|^comment on |(?![^]))/gms;
const TRIGGER = /^create or replace trigger [^;]*? on (\w+)\b[^;]*?execute function (\w+)/gms;
const DELEGATED = /p\.proname in \(([^)]*)\)(?=[^;]*;?[^;]*?distribution_arg_name)/s;

/**
 * Why other nodes of a distributed database would refuse a function of the migrations, each with its name: it names a
 * table of the coordinator, or notifies, in a transaction that Citus prepares. The functions are the triggers of
 * distributed tables, those that run whole on the node of their user, and all that these call. Of several texts of a
 * function the last one counts.
 */
export function nodeFaults(texts: string[], coordinatorTables: readonly string[]): string[] {
  const { bodies, onNodes } = listOnNodes(texts);
  return [...onNodes].toSorted().flatMap((name) => {
    const body = bodies.get(name) ?? '';
    const named = coordinatorTables.filter((table) =>
      new RegExp(String.raw`\b(?:from|join|into|update|using)\s+${table}\b`).test(body),
    );
    return [...named, ...(/\bpg_notify\b/.test(body) ? ['pg_notify'] : [])].map((what) => `${name}: ${what}`);
  });
}

/** The functions of the migrations, and the names of those that run on other nodes. */
function listOnNodes(texts: string[]): { bodies: Map<string, string>; onNodes: Set<string> } {
  const all = texts.map((text) => text.replaceAll(/--.*$/gm, ''));
  const bodies = new Map<string, string>();
  for (const [, name = '', body = ''] of all.flatMap((text) => [...text.matchAll(FUNCTION)]))
    bodies.set(name, body.replaceAll(/'(?:[^']|'')*'/g, `''`));
  const triggers = all.flatMap((text) => [...text.matchAll(TRIGGER)]);
  const delegated = all.flatMap((text) => [...(DELEGATED.exec(text)?.[1] ?? '').matchAll(/'(\w+)'/g)]);
  const onNodes = new Set([
    ...triggers.flatMap(([, table = '', name = '']) => (DISTRIBUTED_TABLES.includes(table) ? [name] : [])),
    ...delegated.map(([, name = '']) => name),
  ]);
  // A set is read to its end, also as it grows.
  for (const name of onNodes)
    for (const [, called = ''] of (bodies.get(name) ?? '').matchAll(/\b(\w+)\s*\(/g)) {
      if (bodies.has(called)) onNodes.add(called);
    }
  return { bodies, onNodes };
}

const NAMED = /\b(?:from|join|using|update|into)\s+(\w+)(?!\.|\()/gi;

/**
 * Statements of functions that run whole on the node of a user, and of those that they call, which name a spread table
 * more often than `user_id`: the function and the table. Such a statement would ask all nodes, or is refused.
 */
export function unroutedFunctions(texts: string[]): string[] {
  const { bodies, onNodes } = listOnNodes(texts);
  return [...onNodes].toSorted().flatMap((name) =>
    (bodies.get(name) ?? '').split(';').flatMap((part) => {
      const spread = [...part.matchAll(NAMED)].flatMap(([, table = '']) =>
        DISTRIBUTED_TABLES.includes(table) ? [table] : [],
      );
      const users = part.match(/\buser_id\b/g)?.length ?? 0;
      return spread.length > users ? [`${name}: ${spread.join(', ')}`] : [];
    }),
  );
}

function countBy(names: string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** The text up to the parenthesis that closes around it. */
function toEndOfCte(text: string): string {
  let depth = 0;
  for (let place = 0; place < text.length; place++) {
    if (text[place] === '(') depth++;
    if (text[place] === ')' && --depth < 0) return text.slice(0, place);
  }
  return text;
}
