import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { allEnded, insertDue, violationsOf } from './support/cronjobs.ts';
import { APP, invokeBody, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { findViolations } from './support/invariants.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer, tryTo } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Two replicas are stopped and replaced in turn while invocations run in every way there is, longer than the grace:
 * each ends as if undisturbed, no prompt is given twice, and what acts once has acted once.
 */

const ROUNDS = either(2, 8);
const CLIENTS = either(8, 16);
const CRONJOBS = 12;
/** Between two restarts, and before the first. */
const WORK_MS = 1_500;
const AT_REST_MS = 5 * MINUTE;
const WAYS = ['/run', '/run_sse', '/harness/invoke', 'background'] as const;
const TOOLS = ['look', 'keep', 'charge'];

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-deploy-'));
/** One line for each run of a tool: its name and its session. */
const runs = join(agents, 'runs');
const tool = (name: string, effect: string) => `{
  name: '${name}', description: 'Counts.', effect: '${effect}',
  parameters: { type: 'object', properties: {}, additionalProperties: false },
  async run(_, { session }) {
    appendFileSync(${JSON.stringify(runs)}, '${name} ' + session.sessionId + '\\n');
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { done: '${name}' };
  } }`;
mkdirSync(join(agents, APP));
writeFileSync(
  join(agents, APP, 'agent.ts'),
  `import { appendFileSync } from 'node:fs';
  const tools = [${tool('look', 'none')}, ${tool('keep', 'idempotent')}, ${tool('charge', 'once')}];
  export const agent = { instruction: 'Work.', tools };`,
);

/** One tool after the other, then the answer. */
function script(messages: Message[], { id }: { id: string }): string | ScriptedCall[] {
  const name = TOOLS[messages.filter(({ role }) => role === 'tool').length];
  return name === undefined ? answerFor(id) : [{ name, arguments: {} }];
}

const here = stage(script);
const settings = () =>
  here.environment({
    AGENTS_DIR: agents,
    TOOLS: '',
    CRONJOBS: 'true',
    DRAIN_DELAY_MS: '300',
    SHUTDOWN_GRACE_MS: '2000',
    SESSION_LEASE_MS: String(paced(5_000)),
    SESSION_WAIT_MS: '120000',
  });
const start = () => startServer(here.servingUrl, settings());
let replicas: ServerProcess[] = [];
beforeAll(async () => {
  replicas = [await start(), await start()];
});
afterAll(async () => {
  for (const replica of replicas) await replica.kill();
});

/** Asks one replica after the other, with the same key, until one answers as `isDone` wants it. */
async function ask(path: string, body: object, key: string, isDone: (answer: Answer) => boolean): Promise<string[]> {
  const heard: string[] = [];
  for (let turn = 0; ; turn += 1) {
    const replica = replicas[turn % replicas.length] as ServerProcess;
    const answer = await tryTo(replica.post(path, body, { 'idempotency-key': key }));
    if (answer && isDone(answer)) return heard;
    // Cut off in the middle, refused by one that stops, or a stream that ended before the answer.
    heard.push(answer ? `${answer.status} ${answer.headers.get('x-invocation-id') === null ? '' : 'left'}` : 'cut');
    if (answer && ![200, 408, 409, 503].includes(answer.status))
      throw new Error(`${path}: ${answer.status} ${answer.text}`);
    await sleep(100);
  }
}

async function work(way: (typeof WAYS)[number], id: string): Promise<string[]> {
  const [userId, sessionId] = ['u', `s-${id}`];
  const prompt = { id, delayMs: 500 };
  await ask(listPath(userId), { sessionId }, `create-${id}`, ({ status }) => status === 200);
  const newMessage = { role: 'user', parts: [{ text: promptFor(prompt) }] };
  const isAnswered = ({ status, text }: Answer) => status === 200 && text.includes(answerFor(id));
  if (way === '/harness/invoke') return ask(way, invokeBody(userId, sessionId, prompt), id, isAnswered);
  if (way !== 'background') return ask(way, { appName: APP, userId, sessionId, newMessage }, id, isAnswered);
  return ask(`${sessionPath(userId, sessionId)}/invocations`, { newMessage }, id, ({ status }) => status === 200);
}

test('two replicas replaced in turn under load: nothing is interrupted, lost or done twice', async () => {
  let isOver = false;
  const heard: string[] = [];
  const ids: string[] = [];
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    const draw = random(`deploy client ${client}`);
    for (let n = 0; !isOver; n += 1) {
      const id = `${client}-${n}`;
      ids.push(id);
      heard.push(...(await work(WAYS[(client + n) % WAYS.length] ?? 'background', id)));
      await sleep(draw.whole(0, 200));
    }
  });
  await insertDue(here.sql, 'cron', CRONJOBS, 500);
  const codes: (number | null)[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const position of replicas.keys()) {
      await sleep(WORK_MS);
      const old = replicas[position] as ServerProcess;
      old.signal('SIGTERM');
      codes.push(await old.exited);
      replicas[position] = await start();
    }
  }
  isOver = true;
  await Promise.all(clients);
  await allEnded(here.sql, 'cron', CRONJOBS);
  const ms = await whenAtRest(here.sql, AT_REST_MS);
  const { rows } = await here.sql.query<
    Record<'attempt' | 'prompts' | 'events', number> & Record<'status' | 'id', string>
  >(
    `select i.status, i.attempt, i.session_id as id, count(e) filter (where e.author = 'user')::int as prompts,
            count(e)::int as events
     from invocations i join events e using (app_name, user_id, session_id) group by 1, 2, 3`,
  );
  const done = existsSync(runs) ? readFileSync(runs, 'utf8').split('\n') : [];
  const charged = new Map<string, number>();
  for (const line of done.filter((each) => each.startsWith('charge '))) charged.set(line, (charged.get(line) ?? 0) + 1);
  const died = rows.filter(({ attempt }) => attempt > 1).length;
  report(
    'deploy',
    `${ROUNDS} times two replicas; ${rows.length} invocations, ${ids.length} of clients, ` +
      `${heard.filter((text) => text.endsWith('left')).length} heard 503 with an id, ${heard.length} retries, ` +
      `${died} taken over after a lease, ${here.model.requests()} model calls for ${rows.length * 4}, ` +
      `charged ${charged.size}; at rest after ${ms} ms; exit codes ${codes.join()}`,
  );
  const isAsAlways = ({ status, prompts, events }: (typeof rows)[number]) =>
    status === 'succeeded' && prompts === 1 && events === 8;
  expect(rows.filter((row) => !isAsAlways(row))).toEqual([]);
  expect(rows).toHaveLength(ids.length + CRONJOBS);
  expect([...charged].filter(([, times]) => times > 1)).toEqual([]);
  expect(await violationsOf(here.sql, 'cron')).toEqual([]);
  expect(await findViolations(here.sql)).toEqual([]);
  expect(here.model.badHistories).toEqual([]);
  expect(new Set(codes)).toEqual(new Set([0]));
});
