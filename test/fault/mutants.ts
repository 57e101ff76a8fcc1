/**
 * Breaks the product one line at a time, in a copy, and runs the test that must notice: a test that cannot fail proves
 * nothing. By hand: `node test/fault/mutants.ts [part of a name]`. Prints a table; exit code 1 when a mutant survives
 * or no longer applies.
 */
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startEphemeral } from '../support/ephemeral-server.ts';
import { evalMutants } from './eval-mutants.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COPIED = [
  'src',
  'test',
  'migrations',
  'package.json',
  'README.md',
  'ARCHITECTURE.md',
  'docs',
  'vitest.config.ts',
  'vitest.fault.config.ts',
  'tsconfig.json',
];
/** Copies that are tried at once. */
const LANES = 2;

/** One line of the product, broken. */
export interface Mutant {
  name: string;
  file: string;
  /** Text that stands in the file exactly once, and what it becomes. */
  from: string;
  to: string;
  /** The test file that must turn red, and the part of its names to run [all]. */
  test: string;
  only?: string;
}

const LEASES = 'test/store/session-lock.test.ts';
const SESSIONS = 'test/store/sessions.test.ts';
const INVOCATIONS = 'test/api/invocations.test.ts';

const mutants: Mutant[] = [
  {
    name: 'appends without the fence',
    file: 'src/sessions/event-store.ts',
    from: 'const fence = leaseToken === undefined ? undefined : eq(sessions.leaseToken, leaseToken);',
    to: 'const fence = undefined;',
    test: LEASES,
  },
  {
    name: 'finishes without the fence',
    file: 'src/sessions/session-lease.ts',
    from: 'leaseToken: null })\n    .where(and(isSession(append.key, sessions), eq(sessions.leaseToken, leaseToken)))',
    to: 'leaseToken: null })\n    .where(and(isSession(append.key, sessions), leaseToken ? undefined : eq(sessions.id, leaseToken)))',
    test: LEASES,
  },
  {
    name: 'renews whatever the token',
    file: 'src/invocations/lock-store.ts',
    from: '.where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), isActive))\n    .returning',
    to: '.where(isInvocation(lease))\n    .returning',
    test: LEASES,
  },
  {
    name: 'orders events by their timestamp',
    file: 'src/sessions/event-store.ts',
    from: "string_agg(sized.payload::text, ',' order by sized.sequence)",
    to: "string_agg(sized.payload::text, ',' order by (sized.payload ->> 'timestamp')::float8)",
    test: SESSIONS,
  },
  {
    name: 'forgets to lock the session in a take-over',
    file: 'src/sessions/session-lease.ts',
    from: "\n    .for('update', skipLocked ? { skipLocked } : {})",
    to: '',
    test: LEASES,
  },
  {
    name: 'looks for the holder in one statement, whose join shows an older snapshot',
    file: 'src/invocations/lock-store.ts',
    from: 'const session = await lockSession(tx, key, skipLocked);',
    to: `const joined = await tx.execute(sql\`select s.lease_token as token, i.id, i.lease_expire_time > clock_timestamp() as live
        from sessions s left join invocations i on (i.app_name, i.user_id, i.session_id, i.lease_token, i.status)
          = (s.app_name, s.user_id, s.id, s.lease_token, 'running')
        where s.app_name = \${key.appName} and s.user_id = \${key.userId} and s.id = \${key.sessionId} for update of s\`,
  );
  const found = joined.rows[0] as unknown as { token: string; id: string | null; live: boolean | null } | undefined;
  if (found?.token)
    return found.live === true
      ? { kind: 'live', invocationId: found.id ?? '', token: found.token }
      : { kind: 'dead', invocationId: found.id ?? undefined, token: found.token };
  const session = await lockSession(tx, key, skipLocked);`,
    test: LEASES,
  },
  {
    name: 'replaces shared state instead of merging it',
    file: 'src/sessions/append-events.ts',
    from: 'state: merged(table.state, excluded(table.state))',
    to: 'state: excluded(table.state)',
    test: SESSIONS,
  },
  {
    name: 'claims a session that is held',
    file: 'src/sessions/session-lease.ts',
    from: 'setWhere: sql`${sessions.leaseToken} is null and ${condition}`',
    to: 'setWhere: condition',
    test: LEASES,
  },
  {
    name: 'leaves the calls of a dead invocation open',
    file: 'src/invocations/take-over.ts',
    from: 'const ending = endingEvents(invocationId, author, events, PROCESS_DIED, newId);',
    to: 'const ending = endingEvents(invocationId, author, [], PROCESS_DIED, newId);',
    test: LEASES,
  },
  {
    name: 'lets a zombie take the take-over for its own end',
    file: 'src/invocations/take-over.ts',
    from: 'revokesToken: true',
    to: 'revokesToken: false',
    test: LEASES,
  },
  {
    name: 'forgets the order of the queue',
    file: 'src/invocations/lock-store.ts',
    from: 'sql`and ${place} < (select mine.create_time, mine.id from mine)`',
    to: 'sql`and false`',
    test: 'test/fault/queue-order.test.ts',
  },
  {
    name: 'claims a place that was cancelled',
    file: 'src/invocations/lock-store.ts',
    from: "where ${isInvocation(lease)} and ${invocations.status} = 'queued'\n        and (${invocations.leaseToken} = ${lease.token} or ${isBackground})",
    to: 'where ${isInvocation(lease)}',
    test: LEASES,
  },
  {
    name: 'ignores what the idempotency key came with',
    file: 'src/invocations/retry.ts',
    from: 'if (found && found.hash !== request.hash)',
    to: 'if (false)',
    test: INVOCATIONS,
    only: 'a retry with the same key',
  },
  {
    name: 'swallows the conflict of a taken session id',
    file: 'src/sessions/session-store.ts',
    from: 'if (rows.length === 0) throw new ConflictError(`Session already exists',
    to: 'if (rows.length < 0) throw new ConflictError(`Session already exists',
    test: SESSIONS,
  },
  {
    name: 'lets the time of a session go back',
    file: 'src/sessions/append-events.ts',
    from: "greatest(${sessions.updateTime} + interval '1 microsecond', clock_timestamp())",
    to: 'clock_timestamp()',
    test: 'test/fault/clock.test.ts',
  },
  {
    name: 'lists the sessions of evaluation runs',
    file: 'src/sessions/session-store.ts',
    from: 'eq(s.userId, userId), not(s.isEval),',
    to: 'eq(s.userId, userId),',
    test: SESSIONS,
  },
  {
    name: 'does not undo the escape',
    file: 'src/db/json-escape.ts',
    from: 'return text.replace(MARKED, (_, code: string) =>',
    to: 'return text.replace(/(?!)/g, (_, code: string) =>',
    test: SESSIONS,
  },
  {
    name: 'stores temp: keys',
    file: 'src/core/state.ts',
    from: 'for (const [key, value] of Object.entries(delta)) if (!isTemporary(key)) kept[key] = value;',
    to: 'for (const [key, value] of Object.entries(delta)) kept[key] = value;',
    test: SESSIONS,
  },
  {
    name: 'shows a session to every user',
    file: 'src/sessions/session-key.ts',
    from: 'and ${table.userId} = ${userId}',
    to: 'and ${userId}::text is not null',
    test: 'test/api/sessions.test.ts',
  },
  {
    name: 'gives two artifact versions one number',
    file: 'src/artifacts/artifact-store.ts',
    from: 'sql`${nextVersion} + 1`',
    to: 'nextVersion',
    test: 'test/store/artifacts.test.ts',
  },
  {
    name: 'dies of a connection that breaks in a transaction',
    file: 'src/db/database.ts',
    from: "client.on('error', ignore);",
    to: '',
    test: 'test/fault/lost-replies.test.ts',
    only: 'after the statement',
  },
  {
    name: 'repeats an append blindly',
    file: 'src/invocations/persist.ts',
    from: 'if (error instanceof ConflictError && repeated) return findEventsById(db, lease.key, [event.id]);',
    to: '',
    test: 'test/fault/lost-replies.test.ts',
    only: 'after the statement',
  },
  {
    name: 'does not repeat after a deadlock',
    file: 'src/db/database.ts',
    from: "const REPEATABLE = new Set(['40001', '40P01', '55P03']);",
    to: 'const REPEATABLE = new Set<string>();',
    test: 'test/fault/sqlstates.test.ts',
  },
];

interface Outcome {
  mutant: string;
  test: string;
  result: 'killed' | 'SURVIVED' | 'does not apply';
  seconds: number;
}

const testOf = ({ test, only }: Mutant) => (only ? `${test} (${only})` : test);

/** Runs one test file in a copy; true when it is green. */
function isGreen(copy: string, databaseUrl: string, { test, only }: Pick<Mutant, 'test' | 'only'>): Promise<boolean> {
  const config = test.startsWith('test/fault/') ? 'vitest.fault.config.ts' : 'vitest.config.ts';
  const args = [
    join(ROOT, 'node_modules/vitest/vitest.mjs'),
    'run',
    '--config',
    config,
    test,
    ...(only ? ['-t', only] : []),
  ];
  const env = { ...process.env, TEST_DATABASE_URL: databaseUrl, FAULT_SEED: '1' };
  const child = spawn(process.execPath, args, { cwd: copy, env, stdio: 'ignore' });
  return new Promise((resolve) => child.once('exit', (code) => resolve(code === 0)));
}

function makeCopy(): string {
  const copy = mkdtempSync(join(tmpdir(), 'agent-runtime-mutants-'));
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

async function tryMutant(copy: string, databaseUrl: string, mutant: Mutant): Promise<Outcome> {
  const startedAt = performance.now();
  const path = join(copy, mutant.file);
  const text = readFileSync(path, 'utf8');
  const outcome = (result: Outcome['result']): Outcome => ({
    mutant: mutant.name,
    test: testOf(mutant),
    result,
    seconds: Math.round((performance.now() - startedAt) / 1000),
  });
  if (text.split(mutant.from).length !== 2) return outcome('does not apply');
  writeFileSync(
    path,
    text.replace(mutant.from, () => mutant.to),
  );
  const green = await isGreen(copy, databaseUrl, mutant);
  writeFileSync(path, text);
  return outcome(green ? 'SURVIVED' : 'killed');
}

/** The tests without a mutant: a red one would kill everything. */
async function findRed(copy: string, databaseUrl: string, chosen: Mutant[]): Promise<string[]> {
  const red: string[] = [];
  const tests = new Map(chosen.map((mutant) => [testOf(mutant), mutant]));
  for (const [name, mutant] of tests) if (!(await isGreen(copy, databaseUrl, mutant))) red.push(name);
  return red;
}

async function main(): Promise<void> {
  const chosen = [...mutants, ...evalMutants].filter(({ name }) => name.includes(process.argv[2] ?? ''));
  const server = await startEphemeral();
  const copies = Array.from({ length: LANES }, makeCopy);
  try {
    const red = await findRed(copies[0] ?? '', server.url, chosen);
    if (red.length > 0) console.error(`red without a mutant, so they prove nothing: ${red.join(', ')}`);
    const waiting = chosen.filter((mutant) => !red.includes(testOf(mutant)));
    const outcomes: Outcome[] = [];
    const lanes = copies.map(async (copy) => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        outcomes.push(await tryMutant(copy, server.url, next));
      }
    });
    await Promise.all(lanes);
    console.table(outcomes);
    const killed = outcomes.filter(({ result }) => result === 'killed').length;
    console.log(`mutants: ${killed}/${chosen.length} killed`);
    process.exitCode = killed === chosen.length ? 0 : 1;
  } finally {
    for (const copy of copies) rmSync(copy, { recursive: true, force: true });
    await server.stop();
  }
}

await main();
