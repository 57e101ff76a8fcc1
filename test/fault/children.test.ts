import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { MINUTE } from '../support/patience.ts';
import { APP, eventually, listPath, report, stage } from './support/faults.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';

/**
 * Trees of agents that call others like tools, three deep, whose processes are killed, and whose lowest agents act and
 * ask a person. Each result comes once, and what was used counts once.
 */

const TREES = either(12, 1_000);
/** Trees that run at the same time. */
const AT_ONCE = 6;
const ENDED_WITHIN_MS = either(6, 120) * MINUTE;
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [500, 4_000];
/** Two calls of the root, with one each below; the lowest act, ask and answer. */
const LLM_CALLS = 2 + 2 * 2 + 2 * 3;

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-children-'));
mkdirSync(join(agents, APP));
/** What acted: a line for each time. */
const acts = join(agents, 'acts');
writeFileSync(acts, '');
writeFileSync(
  join(agents, APP, 'agent.ts'),
  `import { appendFileSync } from 'node:fs';
  const plain = { description: 'Acts.', parameters: { type: 'object', properties: {} }, needsConfirmation: false };
  const act = { ...plain, name: 'act', effect: 'once',
    run: async (_, { operationId }) => { appendFileSync(${JSON.stringify(acts)}, operationId + '\\n'); return { acted: true }; } };
  const ask = { ...plain, name: 'ask', longRunning: true, effect: 'none', wait: { kind: 'question' }, run: async () => undefined };
  const leaf = { name: 'leaf', asTool: true, instruction: 'Act.', tools: [act, ask] };
  const middle = { name: 'middle', asTool: true, instruction: 'Hand on.', subAgents: [leaf] };
  export const agent = { instruction: 'Hand on.', subAgents: [middle] };`,
);

/** The id of a prompt says which agent has it: that of the root, then with `.0` or `.1`, then with `.leaf`. */
function script(messages: Message[], { id }: { id: string }): string | ScriptedCall[] {
  const results = messages.filter(({ role }) => role === 'tool').length;
  const call = (name: string, below: string) => ({ name, arguments: { request: promptFor({ id: below }) } });
  if (id.endsWith('.leaf'))
    return results < 2 ? [{ name: results === 0 ? 'act' : 'ask', arguments: {} }] : answerFor(id);
  if (results > 0) return answerFor(id);
  return id.includes('.') ? [call('leaf', `${id}.leaf`)] : [call('middle', `${id}.0`), call('middle', `${id}.1`)];
}

const here = stage(script);

interface InvocationRow {
  userId: string;
  depth: number;
  status: string;
  llmCalls: number;
  /** Responses of the calls of agents in its events, and texts that it answered. */
  responses: object[];
  answers: number;
}

const listInvocations = async () =>
  (
    await here.sql.query<InvocationRow>(
      `select i.user_id as "userId", s.depth, i.status, i.llm_calls as "llmCalls", e.responses, e.answers
       from invocations i
       join sessions s on (s.app_name, s.user_id, s.id) = (i.app_name, i.user_id, i.session_id)
       cross join lateral (
         select coalesce(json_agg(p #> '{functionResponse,response}') filter (
                  where p #>> '{functionResponse,name}' in ('middle', 'leaf')), '[]') as responses,
                count(*) filter (where p ->> 'text' like 'answer %' and e.author <> 'user')::int as answers
         from events e cross join jsonb_path_query(e.payload, '$.content.parts[*]') p
         where (e.app_name, e.user_id, e.session_id) = (i.app_name, i.user_id, i.session_id)) e
       order by 1, 2`,
    )
  ).rows;

test('trees go on when processes die: each agent answers once, acts at most once, and is counted once', async () => {
  const draw = random('trees');
  const settings = {
    AGENTS_DIR: agents,
    TOOLS: '',
    SESSION_LEASE_MS: String(paced(1_000)),
    INVOCATION_ATTEMPTS: '100',
  };
  const start = () => startServer(here.databaseUrl, here.environment(settings));
  const survivor = await start();
  const victims = spareServers(start);
  let victim: ServerProcess = await victims.take();
  let isOver = false;
  let kills = 0;
  const killing = (async () => {
    while (!isOver) {
      await sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS));
      const next = await victims.take();
      const dead = victim;
      victim = next;
      await dead.kill();
      kills += 1;
    }
  })();
  /** As a person who answers whatever is asked. */
  const answering = (async () => {
    while (!isOver) {
      const list = await tryTo(survivor.get(`/tasks?appName=${APP}&limit=100`));
      const { items = [] } = (list?.body ?? {}) as { items?: { id: string }[] };
      for (const { id } of items)
        await tryTo(survivor.send('PATCH', `/tasks/${id}`, { action: 'answer', answer: { answer: 'Yes.' } }));
      await sleep(100);
    }
  })();
  const names = Array.from({ length: TREES }, (_, place) => `t${place}`);
  const grow = async (name: string) => {
    await survivor.post(listPath(name), { sessionId: name });
    const newMessage = { role: 'user', parts: [{ text: promptFor({ id: name }) }] };
    for (let isTold = false; !isTold; ) {
      const at = draw.whole(0, 1) === 0 ? victim : survivor;
      const path = `${listPath(name)}/${name}/invocations`;
      const answer = await tryTo(at.post(path, { newMessage }, { 'idempotency-key': name }));
      isTold = answer?.status === 200;
      if (!isTold) await sleep(50);
    }
    await eventually(`the tree ${name} has ended`, ENDED_WITHIN_MS, async () => {
      const { rows } = await here.sql.query<{ open: number }>(
        `select count(*)::int as open from invocations where user_id = $1 and status in ('queued', 'running', 'paused')`,
        [name],
      );
      return rows[0]?.open === 0;
    });
  };
  const waiting = [...names];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) await grow(name);
    }),
  );
  isOver = true;
  await Promise.all([killing, answering]);
  await Promise.all([victim.kill(), victims.close(), survivor.kill()]);

  const rows = await listInvocations();
  const violations: string[] = [];
  for (const { userId, depth, status, llmCalls, responses, answers } of rows) {
    const told = `${userId} at ${depth}: ${status}, ${llmCalls} calls, ${answers} answers, ${JSON.stringify(responses)}`;
    const wanted = { 0: LLM_CALLS, 1: 5, 2: 3 }[depth];
    if (status !== 'succeeded' || answers !== 1 || llmCalls !== wanted) violations.push(told);
    if (responses.length !== (depth === 0 ? 2 : depth === 1 ? 1 : 0) || JSON.stringify(responses).includes('"error"'))
      violations.push(told);
  }
  const acted = readFileSync(acts, 'utf8').split('\n').filter(Boolean);
  const told = `${TREES} trees, ${kills} kills, ${acted.length} acts, ${violations.length} violations`;
  report('trees', told);
  expect(violations).toEqual([]);
  expect(rows).toHaveLength(5 * TREES);
  expect(new Set(acted).size).toBe(acted.length);
  expect(kills).toBeGreaterThan(0);
  expect(here.model.badHistories).toEqual([]);
});
