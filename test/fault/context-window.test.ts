import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SUMMARY_INSTRUCTION } from '../../src/agent/loop/compact.ts';
import { getAnswerText } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import {
  type Asked,
  type AnsweringProvider,
  type Reply,
  startAnsweringProvider,
} from '../support/answering-provider.ts';
import { MINUTE } from '../support/patience.ts';
import { APP, eventually, report, sessionPath, stage } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { either } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

/**
 * One invocation of many steps (2,000 in the long set) with a model of 32,000 tokens, which refuses a larger prompt as
 * real ones do. Its process is killed on the way, twenty times in the long set. It ends as the undisturbed one does, and
 * knows what it found long before.
 */

const [STEPS, KILLS] = [either(800, 2_000), either(8, 20)];
const WINDOW = 32_000;
const LEASE_MS = paced(600);
const ENDED_WITHIN_MS = 10 * MINUTE;
/** Steps whose results have a fact: at the beginning, in the middle and at the end. */
const PLANTED = [1, 2, 3, STEPS / 2 - 1, STEPS / 2, STEPS / 2 + 1, STEPS - 3, STEPS - 2, STEPS - 1, STEPS];

const valueOf = (step: number) => createHash('sha256').update(`value ${step}`).digest('hex').slice(0, 12);
const FACT = /fact-\d+ is [0-9a-f]{12}/g;

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-context-'));
mkdirSync(join(agents, APP), { recursive: true });
writeFileSync(
  join(agents, APP, 'agent.ts'),
  `import { createHash } from 'node:crypto';
  const valueOf = (step) => createHash('sha256').update('value ' + step).digest('hex').slice(0, 12);
  const planted = ${JSON.stringify(PLANTED)};
  export const agent = { instruction: 'You look things up.', maxLlmCalls: 100_000, tools: [{
    name: 'look', description: 'Looks at a page.', effect: 'none', needsConfirmation: false,
    parameters: { type: 'object', properties: { step: { type: 'integer' } }, required: ['step'] },
    run: async ({ step }) => ({ page: (planted.includes(step) ? 'fact-' + step + ' is ' + valueOf(step) + '. ' : '') +
      'Some words of page ' + step + ' that mean little. '.repeat(16) }) }] };`,
);

/** What the model saw: the largest prompt, how many were too large, and the number of summaries. */
const seen = { largest: 0, tooLarge: 0, summaries: 0 };

/** More tokens than the runtime guesses before it has seen a count. */
const tokensOf = ({ body }: Asked) =>
  Math.ceil((JSON.stringify(body['messages']).length + JSON.stringify(body['tools'] ?? []).length) / 3);

const usageOf = (asked: Asked) => {
  const tokens = tokensOf(asked);
  return { prompt_tokens: tokens, completion_tokens: 20, total_tokens: tokens + 20 };
};

function reply(asked: Asked): Reply {
  // Thousands of prompts are not kept.
  provider.asked.length = 0;
  const tokens = tokensOf(asked);
  if (tokens > WINDOW) {
    seen.tooLarge += 1;
    const message = `This model's maximum context length is ${WINDOW} tokens, and ${tokens} were asked for.`;
    return {
      status: 400,
      error: { message, type: 'invalid_request_error', param: 'messages', code: 'context_length_exceeded' },
    };
  }
  seen.largest = Math.max(seen.largest, tokens);
  return answerTo(asked);
}

/** It knows only what stands in the prompt: facts for a summary, the next step, or the answer to a question. */
function answerTo({ messages, system, prompt, body }: Asked): Reply {
  const facts = [...new Set(JSON.stringify(body['messages']).match(FACT) ?? [])];
  if (system.includes(SUMMARY_INSTRUCTION.slice(0, 40))) {
    seen.summaries += 1;
    return facts.length > 0 ? facts.join('. ') : 'Nothing of note.';
  }
  const [, asked] = /What is (fact-\d+)\?/.exec(messages.at(-1)?.role === 'user' ? prompt : '') ?? [];
  if (asked) return facts.find((fact) => fact.startsWith(`${asked} is`)) ?? 'unknown';
  const calls = messages.findLast(({ tool_calls }) => tool_calls)?.tool_calls as
    | { function: { arguments: string } }[]
    | undefined;
  const step = calls?.[0] ? (JSON.parse(calls[0].function.arguments) as { step: number }).step : 0;
  return step < STEPS ? { calls: [['look', { step: step + 1 }]] } : 'All pages are read.';
}

const here = stage();
let provider: AnsweringProvider;
beforeAll(async () => {
  provider = await startAnsweringProvider(reply, usageOf);
});
// Closing it fails if it has refused what real providers refuse.
afterAll(() => provider.close());

const start = () =>
  startServer(
    here.databaseUrl,
    here.environment({
      MODEL_BASE_URL: provider.baseUrl,
      MODEL_CONTEXT_TOKENS: String(WINDOW),
      AGENTS_DIR: agents,
      TOOLS: '',
      MAX_TOOL_CALLS: '100000',
      INVOCATION_TIMEOUT_MS: '3600000',
      INVOCATION_ATTEMPTS: '100',
      SESSION_LEASE_MS: String(LEASE_MS),
    }),
  );

const eventsOf = async (at: ServerProcess, userId: string) =>
  ((await at.get(sessionPath(userId, 's'))).body as { events: Event[] }).events;

const countOf = async (userId: string) =>
  (await here.sql.query<{ count: number }>('select count(*)::int as count from events where user_id = $1', [userId]))
    .rows[0]?.count ?? 0;

async function begin(at: ServerProcess, userId: string): Promise<void> {
  const path = sessionPath(userId, 's');
  await at.post(path.replace(/\/s$/, ''), { sessionId: 's' });
  const { status } = await at.post(`${path}/invocations`, {
    newMessage: { role: 'user', parts: [{ text: `Read all ${STEPS} pages.` }] },
  });
  expect(status).toBe(200);
}

const whenEnded = (userId: string) =>
  eventually('the invocation has ended', ENDED_WITHIN_MS, async () => {
    const { rows } = await here.sql.query<{ status: string }>(
      `select status from invocations where user_id = $1 and status not in ('queued', 'running')`,
      [userId],
    );
    return rows.length === 1;
  });

/** The events without ids, times and what the clock made of them. */
/** Members that differ between two runs: ids and times. */
const NAMES_AND_TIMES = new Set([
  'id',
  'invocationId',
  'handle',
  'eventId',
  'agent-runtime/covers',
  'timestamp',
  'startTimestamp',
  'endTimestamp',
]);
const toComparable = (events: Event[]) =>
  events.map((event) =>
    JSON.stringify(event, (name, value: unknown) => (NAMES_AND_TIMES.has(name) ? undefined : value)),
  );

test('many steps on a window of 32,000 tokens, with and without kills', {
  timeout: 3 * ENDED_WITHIN_MS,
}, async () => {
  let running = await start();
  await begin(running, 'calm');
  await whenEnded('calm');
  const calm = await eventsOf(running, 'calm');
  expect(getAnswerText(calm.at(-1)?.content)).toBe('All pages are read.');
  const calmSummaries = seen.summaries;

  await begin(running, 'killed');
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const reached = Math.floor((calm.length * kill) / (KILLS + 1));
    await eventually('it is so far', ENDED_WITHIN_MS, async () => (await countOf('killed')) >= reached);
    await running.kill();
    running = await start();
  }
  await whenEnded('killed');
  const killed = await eventsOf(running, 'killed');
  expect(toComparable(killed)).toEqual(toComparable(calm));

  const answers = [];
  for (const step of PLANTED) {
    const { body } = await running.post('/harness/invoke', {
      prompt: `What is fact-${step}?`,
      harness_name: 'fault',
      run_agent_request: { user_id: 'killed', session_id: 's' },
    });
    answers.push((body as { output: string }).output);
  }
  await running.kill();
  const strategies = killed.flatMap(({ customMetadata }) => {
    const notes = customMetadata?.['agent-runtime/compaction'] as { strategy: string } | undefined;
    return notes ? [notes.strategy] : [];
  });
  report(
    'context window',
    `${killed.length} events, ${strategies.length} compactions, ${calmSummaries} summaries, largest prompt ${seen.largest}, ${seen.tooLarge} refused`,
  );
  expect(answers).toEqual(PLANTED.map((step) => `fact-${step} is ${valueOf(step)}`));
  expect(seen.tooLarge).toBe(0);
  expect(new Set(strategies)).toEqual(new Set(['drop_results', 'summarise']));
});
