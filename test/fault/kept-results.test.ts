import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { APP, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A result of ten megabytes, and one that is kept in the ledger before its event: the process is killed again and again
 * while the model reads them, and each piece is there, byte for byte.
 */

const KILLS = either(5, 30);
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [500, 4_000];
const PATIENCE_MS = either(10 * MINUTE, 3_600_000);
const LINES = 260_000;
const PIECE = 19_000;
const AT_ONCE = 25;
const lineOf = (place: number) => `${place}: é "quoted" line of the log`;
const whole = Array.from({ length: LINES }, (_, place) => lineOf(place)).join('\n');

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-kept-'));
mkdirSync(join(agents, APP));
writeFileSync(
  join(agents, APP, 'agent.ts'),
  `const parameters = { type: 'object', properties: {}, additionalProperties: false };
  const tool = (name, run) => ({ name, description: 'Logs.', effect: 'idempotent', needsConfirmation: false, parameters, run });
  const later = () => new Promise((resolve) => setTimeout(resolve, 1_500, { late: 'y'.repeat(150_000) }));
  export const agent = { maxLlmCalls: 500, tools: [
    tool('log', () => Array.from({ length: ${LINES} }, (_, place) => place + ': é "quoted" line of the log').join('\\n')),
    tool('late', later),
  ] };`,
);

const textOf = ({ content }: Message) => JSON.parse(content as string) as Record<string, unknown>;
const here = stage((messages: Message[], { id }: { id: string }): string | ScriptedCall[] => {
  const results = messages.filter(({ role }) => role === 'tool').map(textOf);
  const [log, late, ...pieces] = results;
  if (!log || !late) return ['log', 'late'].map((name) => ({ name, arguments: {} }));
  const from = pieces.length * PIECE;
  const starts = Array.from({ length: AT_ONCE }, (_, n) => from + n * PIECE).filter((start) => start < whole.length);
  if (starts.length > 0)
    return starts.map((offset) => ({
      name: 'read_result',
      arguments: { handle: log['handle'], offset, length: PIECE },
    }));
  if (from >= whole.length && pieces.length === Math.ceil(whole.length / PIECE))
    return [{ name: 'read_result', arguments: { handle: late['handle'], path: 'late' } }];
  const read = pieces.slice(0, -1).map(({ text }) => text);
  const isWhole = read.join('') === whole && String(pieces.at(-1)?.['text']).startsWith('yyyy');
  return isWhole ? answerFor(id) : 'It is not what the tool gave.';
});

test('a result of ten megabytes is read back after kills', async () => {
  const draw = random('kept results');
  const environment = {
    AGENTS_DIR: agents,
    TOOLS: '',
    SESSION_LEASE_MS: String(paced(2_000)),
    INVOCATION_ATTEMPTS: '100',
    INVOCATION_TIMEOUT_MS: String(PATIENCE_MS),
    MAX_TOOL_CALLS: '2000',
  };
  const start = () => startServer(here.servingUrl, here.environment(environment));
  let server = await startServer(
    here.servingUrl,
    here.environment({ ...environment, DATABASE_MIGRATION_URL: here.databaseUrl }),
  );
  await server.post(listPath('u'), { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: promptFor({ id: 'kept' }) }] };
  await server.post(`${sessionPath('u', 's')}/invocations`, { newMessage });
  let [kills, isOver] = [0, false];
  const ended = whenAtRest(here.sql, PATIENCE_MS).finally(() => (isOver = true));
  while (kills < KILLS && !isOver) {
    await Promise.race([sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS)), ended]);
    if (isOver) break;
    await server.kill();
    kills += 1;
    server = await start();
  }
  await ended;
  const { rows } = await here.sql.query<{ answer: string; attempt: number }>(
    `select e.payload #>> '{content,parts,0,text}' as answer, i.attempt from events e, invocations i order by e.sequence desc limit 1`,
  );
  const kept = await here.sql.query<{ hash: string }>(
    `select encode(sha256, 'hex') as hash from artifact_versions where session_id = 's' order by size_bytes desc`,
  );
  report('kept results', `${kills} kills, attempt ${rows[0]?.attempt}`);
  expect(rows[0]?.answer).toBe(answerFor('kept'));
  expect(kept.rows).toHaveLength(2);
  expect(kept.rows[0]?.hash).toBe(createHash('sha256').update(whole).digest('hex'));
  expect(here.model.badHistories).toEqual([]);
  await server.kill();
});
