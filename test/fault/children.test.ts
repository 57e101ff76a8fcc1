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
 * Trees of agents that call others like tools, three deep, whose processes are killed or told to leave, and whose lowest
 * agents act and ask a person. The root waits for one of its agents; the other one works in the background. Each result
 * comes once, and what was used counts once, within the limit of the root. A tree that waits is ended by one
 * cancellation, and nothing is left of one whose user is erased.
 */

const TREES = either(12, 1_000);
/** Trees that are cancelled, and as many whose user is erased; nobody answers what they ask. */
const ENDED_TREES = either(4, 100);
/** Trees that run at the same time. */
const AT_ONCE = either(6, 40);
const ENDED_WITHIN_MS = either(6, 120) * MINUTE;
/** Processes that are killed, each again and again: one takes as long to start as some trees to grow. */
const VICTIMS = either(1, 3);
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [either(500, 100), either(4_000, 1_000)];
/** Of so many processes one leaves, and the others are killed. */
const LEAVES_OF = either(3, 8);
/** Two calls of the root, with one each below; the lowest act, ask and answer. */
const LLM_CALLS = 2 + 2 * 2 + 2 * 3;
/** The agent in the background may make a third of what is left after the first call: one more than it needs. */
const MAX_LLM_CALLS = 20;

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
  const lowest = (name) => ({ name, asTool: true, instruction: 'Act.', tools: [act, ask] });
  const middle = { name: 'middle', asTool: true, instruction: 'Hand on.', subAgents: [lowest('leaf')] };
  const worker = { name: 'worker', background: true, instruction: 'Hand on.', subAgents: [lowest('tip')] };
  export const agent = { instruction: 'Hand on.', maxLlmCalls: ${MAX_LLM_CALLS}, subAgents: [middle, worker] };`,
);

/** The id of a prompt says which agent has it: that of the root, then with `.0` or `.1` (in the background), then with `.leaf`. */
function script(messages: Message[], { id }: { id: string }): string | ScriptedCall[] {
  const results = messages.filter(({ role }) => role === 'tool').length;
  const call = (name: string, below: string) => ({ name, arguments: { request: promptFor({ id: below }) } });
  if (id.endsWith('.leaf'))
    return results < 2 ? [{ name: results === 0 ? 'act' : 'ask', arguments: {} }] : answerFor(id);
  if (results > 0) return answerFor(id);
  if (id.endsWith('.0')) return [call('leaf', `${id}.leaf`)];
  return id.endsWith('.1') ? [call('tip', `${id}.leaf`)] : [call('middle', `${id}.0`), call('worker', `${id}.1`)];
}

const here = stage(script);

interface InvocationRow {
  userId: string;
  depth: number;
  status: string;
  llmCalls: number;
  /** True for the message with the result of the agent in the background, which took a running invocation or began one. */
  isResult: boolean;
  /** Of its session: responses of the calls of agents, texts that it answered, and results that it was told. */
  responses: object[];
  answers: number;
  results: string[];
}

const listInvocations = async () =>
  (
    await here.sql.query<InvocationRow>(
      `select i.user_id as "userId", s.depth, i.status, i.llm_calls as "llmCalls", i.id like '%-result' as "isResult",
              e.responses, e.answers, r.results
       from invocations i
       join sessions s on (s.app_name, s.user_id, s.id) = (i.app_name, i.user_id, i.session_id)
       cross join lateral (
         select coalesce(json_agg(p #> '{functionResponse,response}') filter (
                  where p #>> '{functionResponse,name}' in ('middle', 'worker', 'leaf', 'tip')), '[]') as responses,
                count(*) filter (where p ->> 'text' like 'answer %' and e.author <> 'user')::int as answers
         from events e cross join jsonb_path_query(e.payload, '$.content.parts[*]') p
         where (e.app_name, e.user_id, e.session_id) = (i.app_name, i.user_id, i.session_id)) e
       cross join lateral (
         select array(
           select e.payload #>> '{content,parts,0,text}' from events e
           where (e.app_name, e.user_id, e.session_id) = (i.app_name, i.user_id, i.session_id)
             and e.payload -> 'customMetadata' ? 'agent-runtime/result') as results) r
       where i.user_id like 't%'
       order by 1, 2, 5`,
    )
  ).rows;

test('trees go on when processes die or leave: each agent answers once, acts at most once, and is counted once', async () => {
  const draw = random('trees');
  const settings = {
    AGENTS_DIR: agents,
    TOOLS: '',
    SESSION_LEASE_MS: String(paced(1_000)),
    INVOCATION_ATTEMPTS: '100',
  };
  const start = () => startServer(here.databaseUrl, here.environment(settings));
  const survivor = await start();
  const spares = Array.from({ length: VICTIMS }, () => spareServers(start));
  const victims: ServerProcess[] = await Promise.all(spares.map((each) => each.take()));
  let isOver = false;
  let [kills, left] = [0, 0];
  const killing = spares.map(async (each, place) => {
    while (!isOver) {
      await sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS));
      const next = await each.take();
      const dead = victims[place] as ServerProcess;
      victims[place] = next;
      if (draw.whole(1, LEAVES_OF) === 1) {
        dead.signal('SIGTERM');
        void dead.exited;
        left += 1;
      } else {
        await dead.kill();
        kills += 1;
      }
    }
  });
  /** As a person who answers whatever is asked. */
  const answering = (async () => {
    while (!isOver) {
      const list = await tryTo(survivor.get(`/tasks?appName=${APP}&limit=100`));
      const { items = [] } = (list?.body ?? {}) as { items?: { id: string; requestedBy: string }[] };
      for (const { id } of items.filter(({ requestedBy }) => requestedBy.startsWith('t')))
        await tryTo(survivor.send('PATCH', `/tasks/${id}`, { action: 'answer', answer: { answer: 'Yes.' } }));
      await sleep(100);
    }
  })();
  const namesOf = (kind: string, count: number) => Array.from({ length: count }, (_, place) => `${kind}${place}`);
  const plant = async (name: string) => {
    await survivor.post(listPath(name), { sessionId: name });
    const newMessage = { role: 'user', parts: [{ text: promptFor({ id: name }) }] };
    for (;;) {
      const at = draw.whole(0, 1) === 0 ? draw.pick(victims) : survivor;
      const path = `${listPath(name)}/${name}/invocations`;
      const answer = await tryTo(at.post(path, { newMessage }, { 'idempotency-key': name }));
      if (answer?.status === 200) return (answer.body as { id: string }).id;
      await sleep(50);
    }
  };
  const count = async (what: string, name: string) =>
    (await here.sql.query<{ n: number }>(`select count(*)::int as n from ${what} and user_id = $1`, [name])).rows[0]?.n;
  const isAtRest = async (name: string) =>
    (await count(`invocations where status in ('queued', 'running', 'paused')`, name)) === 0;
  const grow = async (name: string) => {
    await plant(name);
    await eventually(`the tree ${name} has ended`, ENDED_WITHIN_MS, () => isAtRest(name));
  };
  const waits = (name: string) =>
    eventually(
      `the tree ${name} waits`,
      ENDED_WITHIN_MS,
      async () => (await count(`tasks where kind = 'question'`, name)) === 2,
    );
  const cancel = async (name: string) => {
    const id = await plant(name);
    // Half of them are cancelled while they are at work.
    if (draw.whole(0, 1) === 0) await waits(name);
    else await sleep(draw.whole(0, 1_000));
    const path = `${listPath(name)}/${name}/invocations/${id}/cancel`;
    while ((await tryTo(survivor.post(path)))?.status !== 200) await sleep(50);
    await eventually(`the tree ${name} was cancelled`, ENDED_WITHIN_MS, () => isAtRest(name));
    expect([name, await count(`invocations where id like '%-result' and status = 'running'`, name)]).toEqual([name, 0]);
  };
  const erase = async (name: string) => {
    await plant(name);
    if (draw.whole(0, 1) === 0) await waits(name);
    await eventually(`the user ${name} is erased`, ENDED_WITHIN_MS, async () => {
      const answer = await tryTo(survivor.send('DELETE', `/apps/${APP}/users/${name}`));
      return answer !== undefined && answer.status < 300;
    });
    for (const table of ['sessions', 'invocations', 'events', 'tasks', 'tool_calls'])
      await eventually(
        `nothing of ${name} is left in ${table}`,
        ENDED_WITHIN_MS,
        async () => (await count(`${table} where true`, name)) === 0,
      );
  };
  const waiting = [
    ...namesOf('t', TREES).map((name) => () => grow(name)),
    ...namesOf('x', ENDED_TREES).map((name) => () => cancel(name)),
    ...namesOf('z', ENDED_TREES).map((name) => () => erase(name)),
  ];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (
        let next = draw.whole(0, waiting.length - 1);
        waiting.length > 0;
        next = draw.whole(0, Math.max(0, waiting.length - 1))
      )
        await waiting.splice(next, 1)[0]?.();
    }),
  );
  isOver = true;
  await Promise.all([...killing, answering]);
  await Promise.all([...victims, survivor].map((each) => each.kill()));
  await Promise.all(spares.map((each) => each.close()));

  const rows = await listInvocations();
  const violations: string[] = [];
  for (const row of rows) {
    const { userId, depth, status, llmCalls, isResult, responses, answers, results } = row;
    const isOwnTurn = isResult && llmCalls > 0;
    // A message that was taken makes no call; one that begins a turn makes one, and its answer is a second one.
    const turns = rows.filter((each) => each.userId === userId && each.isResult && each.llmCalls > 0).length;
    const isCounted = isResult ? llmCalls <= 1 : llmCalls === { 0: LLM_CALLS, 1: 5, 2: 3 }[depth];
    const isTold =
      depth === 0
        ? results.length === 1 && (results[0] ?? '').endsWith(answerFor(`${userId}.1`))
        : results.length === 0;
    const isAnswered =
      responses.length === (depth === 0 ? 2 : depth === 1 ? 1 : 0) && !JSON.stringify(responses).includes('"error"');
    const isRight = status === 'succeeded' && answers === (depth === 0 ? 1 + turns : 1);
    if (!isCounted || !isTold || !isAnswered || !isRight)
      violations.push(`${isOwnTurn ? 'own turn ' : ''}${JSON.stringify(row)}`);
  }
  const acted = readFileSync(acts, 'utf8').split('\n').filter(Boolean);
  const told = `${TREES} trees, ${kills} kills, ${left} leavings, ${acted.length} acts, ${violations.length} violations`;
  report('trees', told);
  expect(violations).toEqual([]);
  // The result of the agent in the background is a row, too.
  expect(rows).toHaveLength(6 * TREES);
  expect(new Set(acted).size).toBe(acted.length);
  expect(kills).toBeGreaterThan(0);
  expect(here.model.badHistories).toEqual([]);
});
