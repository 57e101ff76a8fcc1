import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startReceiver } from '../support/webhook-receiver.ts';
import { allSent, insertHook } from './support/cronjobs.ts';
import { APP, eventually, listPath, report, stage } from './support/faults.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';

/** Deadlines, reminders and answers of tasks while replicas are killed: each happens once, and is told once. */

const KILLS = either(3, 60);
const ENDED_WITHIN_MS = 180_000;

/** What a task of each tool waits for. `race` is answered by a person at about its deadline. */
const WAITS = {
  default: { expiresAfter: 1.2, defaultAnswer: { late: true } },
  fail: { expiresAfter: 0.8 },
  confirm: { expiresAfter: 1 },
  escalate: { groups: ['a'], escalateTo: ['b'], expiresAfter: 0.7, defaultAnswer: { late: true } },
  remind: { remindAfter: [0.4, 0.8], expiresAfter: 1.6, defaultAnswer: { late: true } },
  race: { expiresAfter: 1.5, defaultAnswer: { late: true } },
};
const TOOLS = Object.keys(WAITS);

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-waits-'));
mkdirSync(join(agents, APP));
writeFileSync(
  join(agents, APP, 'agent.ts'),
  `const waits = ${JSON.stringify(WAITS)};
  export const agent = { instruction: 'Wait.', tools: Object.entries(waits).map(([name, wait]) => ({
    name, wait, description: 'Waits.', parameters: { type: 'object', properties: {} },
    ...(name === 'confirm' ? { needsConfirmation: true } : { needsConfirmation: false, longRunning: true }),
    effect: 'none', run: async () => undefined })) };`,
);

/** Calls the tool that the id of the prompt begins with, once. */
function script(messages: Message[], { id }: { id: string }): string | ScriptedCall[] {
  const [name = ''] = id.split('-');
  return messages.some(({ role }) => role === 'tool') ? answerFor(id) : [{ name, arguments: {} }];
}

const here = stage(script);

/** A task with what is stored of its invocation. */
interface TaskRow {
  id: string;
  tool: string;
  reminders: number;
  via: string;
  answer: object;
  /** Whether its deadline gave it to others. */
  escalated: boolean;
  status: string;
  /** Responses that its call has in the session, and final answers there. */
  responses: object[];
  answers: number;
}

const listTasks = async () =>
  (
    await here.sql.query<TaskRow>(
      `select t.id, t.form ->> 'tool' as tool, t.reminders, t.decided_via as via, t.answer, i.status,
              t.assigned_groups = '{b}' as escalated, e.responses, e.answers
       from tasks t
       join invocations i on (i.app_name, i.user_id, i.session_id, i.id)
                           = (t.app_name, t.user_id, t.session_id, t.invocation_id)
       cross join lateral (
         select coalesce(json_agg(p #> '{functionResponse,response}') filter (
                  where p #>> '{functionResponse,id}' = t.call_id), '[]') as responses,
                count(*) filter (where p ->> 'text' = 'answer ' || t.session_id)::int as answers
         from events e cross join jsonb_path_query(e.payload, '$.content.parts[*]') p
         where (e.app_name, e.user_id, e.session_id) = (t.app_name, t.user_id, t.session_id)) e`,
    )
  ).rows;

const countOf = async (text: string) =>
  (await here.sql.query<{ n: number }>(`select count(*)::int as n ${text}`)).rows[0]?.n;

test('replicas are killed among deadlines: each task ends once, each notice has one id, each run goes on', async () => {
  const receiver = await startReceiver();
  const settings = {
    AGENTS_DIR: agents,
    TOOLS: '',
    WEBHOOKS: 'true',
    WEBHOOKS_ALLOWED_HOSTS: receiver.origin,
    // Of an attempt to send, which a killed process leaves behind, after it.
    REQUEST_TIMEOUT_MS: '1000',
    SESSION_LEASE_MS: String(paced(1_000)),
  };
  const start = () => startServer(here.servingUrl, here.environment(settings));
  const draw = random('deadlines');
  const begin = async (server: ServerProcess, round: string) => {
    const { url } = await insertHook(here.sql, round, receiver);
    for (const tool of TOOLS) {
      const sessionId = `${tool}-${round}`;
      const newMessage = { role: 'user', parts: [{ text: promptFor({ id: sessionId }) }] };
      await server.post(listPath(round), { sessionId });
      const path = `${listPath(round)}/${sessionId}/invocations`;
      expect((await server.post(path, { newMessage, webhookUrl: url })).status).toBe(200);
    }
  };
  /** Answers as a person where the task is there by now. */
  const answer = async (server: ServerProcess, round: string) => {
    const list = await tryTo(server.get(`/tasks?sessionId=race-${round}`));
    const [task] = (list?.body as { items?: { id: string }[] } | undefined)?.items ?? [];
    if (task) await tryTo(server.send('PATCH', `/tasks/${task.id}`, { action: 'answer', answer: { late: false } }));
  };
  const rounds = Array.from({ length: KILLS }, (_, kill) => `kill-${kill}`);
  const victims = spareServers(start);
  for (const round of rounds) {
    const victim = await victims.take();
    await begin(victim, round);
    const answered = sleep(draw.whole(300, 1_400)).then(() => answer(victim, round));
    await sleep(draw.whole(50, 1_600));
    await victim.kill();
    await answered;
  }
  // All deadlines of the last ones come while no process runs.
  const last = await victims.take();
  await begin(last, 'away');
  const paused = () => countOf(`from tasks where user_id = 'away'`);
  await expect.poll(paused).toBe(TOOLS.length);
  await Promise.all([last.kill(), victims.close()]);
  await sleep(1_700);
  const replicas = await Promise.all([start(), start()]);
  const all = [...rounds, 'away'];
  const total = all.length * TOOLS.length;
  await eventually('every invocation has gone on', ENDED_WITHIN_MS, async () => {
    const ended = await countOf(`from invocations where status = 'succeeded'`);
    return ended === total;
  });
  for (const round of all) await allSent(here.sql, round);

  const tasks = await listTasks();
  expect(tasks).toHaveLength(total);
  for (const task of tasks) {
    const { tool, id, via } = task;
    expect(task).toMatchObject({ status: 'succeeded', answers: 1, responses: [task.answer] });
    expect(tool === 'race' ? ['deadline', 'tasks'] : ['deadline']).toContain(via);
    expect(task.answer).toMatchObject(
      {
        race: { late: via === 'deadline' },
        fail: { error: 'No answer came in time.' },
        confirm: { confirmed: false },
      }[tool] ?? { late: true },
    );
    expect(task.escalated).toBe(tool === 'escalate');
    expect(task.reminders).toBeLessThanOrEqual(tool === 'remind' ? 2 : 0);
    const told = receiver.received.filter(({ message }) => message.data['taskId'] === id);
    const idsOf = (type: string) => new Set(told.filter(({ message }) => message.type === type).map((each) => each.id));
    const types = ['task.created', 'task.due', 'task.expired', 'task.decided'];
    const byDeadline = Number(via === 'deadline');
    expect(types.map((type) => idsOf(type).size)).toEqual([
      1,
      task.reminders,
      byDeadline + Number(tool === 'escalate'),
      1 - byDeadline,
    ]);
  }
  const byPerson = tasks.filter(({ via }) => via === 'tasks').length;
  const reminders = tasks.reduce((sum, task) => sum + task.reminders, 0);
  const ids = new Set(receiver.received.map(({ id }) => id)).size;
  report(
    'waits',
    `${KILLS} kills, ${total} tasks: ${total - byPerson} by deadline, ${byPerson} by a person, each once`,
  );
  report('waits', `${reminders} reminders; ${ids} notices in ${receiver.received.length} requests`);
  await Promise.all(replicas.map((replica) => replica.kill()));
  await receiver.close();
});
