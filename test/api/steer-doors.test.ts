import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { hostAgent } from '../support/agents.ts';
import { newClient } from '../support/ag-ui.ts';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { type AskedGate, newAskedGate } from '../support/asked-gate.ts';
import { conversationOf, DOORS_SETTING, type MessageDoor, messageDoors, rpc } from '../support/message-doors.ts';
import { callPart } from '../support/scripted-model.ts';

/** Messages that steer, through every door: each is in the run or begins its own turn, once, and its answer says so. */

const steer = { 'x-double-texting': 'steer' };
const sum = callPart('calculator', { expression: '1' });

let gate: AskedGate;
let app: TestApp;
beforeAll(async () => {
  gate = newAskedGate();
  const agents = hostAgent(gate.model, [], { tools: ['calculator'] });
  app = await startApp({ DOORS: DOORS_SETTING }, { agents, sweepIntervalMs: 50 });
});
afterAll(() => app.close());

const pathOf = (session: string) => `/apps/harness_agent/users/u/sessions/${session}`;
const sendBy = ({ send }: MessageDoor, sessionId: string, text: string, headers = {}) =>
  send(app, { userId: 'u', sessionId, id: randomUUID(), text, headers });
const run = (session: string, text: string) => sendBy(messageDoors[0] as MessageDoor, session, text);

interface Row {
  id: string;
  status: string;
  steeredInto?: string;
}
const list = async (session: string) => (await app.get(`${pathOf(session)}/invocations`)).body as Row[];
const countOf = async (session: string, status: string) =>
  (await list(session)).filter((row) => row.status === status).length;
const events = async (session: string) => ((await app.get(pathOf(session))).body as { events: Event[] }).events;

async function open(): Promise<string> {
  const session = `s-${randomUUID()}`;
  await app.post('/apps/harness_agent/users/u/sessions', { sessionId: session });
  return session;
}

/** Once in the session, in this invocation, and its request says what became of it. */
async function expectOnce(session: string, answer: Answer, says: boolean): Promise<Row> {
  await expect.poll(() => countOf(session, 'succeeded')).toBe(2);
  const rows = await list(session);
  const own = rows.find(({ id }) => id !== rows.at(-1)?.id);
  const said = (await events(session)).filter((event) => event.content?.parts?.[0]?.text === 'two');
  expect(said).toHaveLength(1);
  expect(said[0]?.invocationId).toBe(own?.steeredInto ?? own?.id);
  const named = answer.headers.get('x-invocation-id');
  if (named !== null) expect(named).toBe(says ? (own?.steeredInto ?? own?.id) : own?.id);
  return own as Row;
}

test.each(messageDoors)('$name: the message is taken, and its client gets the answer behind it', async (door) => {
  const session = await open();
  const before = gate.asked.length;
  const first = run(session, 'one');
  await gate.entered(before + 1);
  const second = sendBy(door, session, 'two', steer);
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'before' }, sum);
  await gate.entered(before + 2);
  expect(gate.asked.at(-1)).toEqual(['one', 'before', 'calculator()', '=calculator', 'two']);
  gate.answer({ text: 'behind' });
  await first;
  const answer = await second;
  expect(answer.status).toBe(200);
  const own = await expectOnce(session, answer, door.says === true);
  expect(own.steeredInto).toBeDefined();
  if (!door.leaves) expect(answer.text).toContain('behind');
  expect(gate.asked).toHaveLength(before + 2);
});

test.each(messageDoors)('$name: the run ends first, and the message begins its own turn', async (door) => {
  const session = await open();
  const before = gate.asked.length;
  const first = run(session, 'one');
  await gate.entered(before + 1);
  const second = sendBy(door, session, 'two', steer);
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'over' });
  await gate.entered(before + 2);
  expect(gate.asked.at(-1)).toEqual(['one', 'over', 'two']);
  gate.answer({ text: 'its own' });
  await first;
  const answer = await second;
  expect(answer.status).toBe(200);
  expect((await expectOnce(session, answer, door.says === true)).steeredInto).toBeUndefined();
  if (!door.leaves) expect(answer.text).toContain('its own');
});

/** Clients that have tools of their own, or say how the model answers, send these with each request. */
const settings: {
  name: string;
  says?: true;
  send: (session: string, text: string, tool: string, headers?: object) => Promise<Answer>;
}[] = [
  {
    name: 'AG-UI, tools of the front end',
    send: (session, text, name, headers) => {
      const messages = [{ id: randomUUID(), role: 'user', content: text }];
      const tools = [{ name, description: 'A tool.', parameters: { type: 'object', properties: {} } }];
      const input = { threadId: session, runId: randomUUID(), messages, tools, context: [], state: {} };
      return app.post('/ag-ui/harness_agent?user_id=u', input, { ...headers });
    },
  },
  {
    name: 'OpenAI responses, instructions and tools',
    send: (session, input, name, headers) => {
      const tools = [
        { type: 'function', name, description: 'A tool.', parameters: { type: 'object', properties: {} } },
      ];
      const how = { instructions: 'Be brief.', temperature: 0.5, tools };
      const body = {
        model: 'harness_agent',
        conversation: conversationOf({ userId: 'u', sessionId: session }),
        input,
        ...how,
      };
      return app.post('/v1/responses?user_id=u', body, { ...headers });
    },
  },
  {
    name: 'POST /harness/invoke, a limit and a tool of the service',
    says: true,
    send: (session, prompt, name, headers) => {
      const harness = { max_llm_calls: 10, tools: [name] };
      const of = { user_id: 'u', session_id: session };
      return app.post('/harness/invoke', { prompt, harness_name: 'h', harness, run_agent_request: of }, { ...headers });
    },
  },
];

test.each(settings)(
  '$name: a message with the settings of what runs is taken; with others it begins its own turn, with these',
  async ({ send, says = false }) => {
    for (const tool of ['current_time', 'write_state']) {
      const session = await open();
      const before = gate.asked.length;
      const first = send(session, 'one', 'current_time');
      await gate.entered(before + 1);
      const second = send(session, 'two', tool, steer);
      await expect.poll(() => countOf(session, 'queued')).toBe(1);
      gate.answer({ text: 'before' }, sum);
      await gate.entered(before + 2);
      const isTaken = tool === 'current_time';
      const step = ['one', 'before', 'calculator()', '=calculator'];
      expect(gate.asked.at(-1)).toEqual(isTaken ? [...step, 'two'] : step);
      gate.answer({ text: 'over' });
      if (!isTaken) {
        await gate.entered(before + 3);
        expect(gate.asked.at(-1)?.at(-1)).toBe('two');
        gate.answer({ text: 'its own' });
      }
      expect(gate.offered.at(-1)).toEqual(['calculator', tool]);
      await first;
      const { id, steeredInto = id } = await expectOnce(session, await second, says);
      expect(steeredInto !== id).toBe(isTaken);
    }
  },
);

test('A2A: a message that names a task that works is refused, and the error says what steers it', async () => {
  const session = await open();
  const before = gate.asked.length;
  const first = run(session, 'one');
  await gate.entered(before + 1);
  const ask = async (method: string, params: object) =>
    (await app.post('/a2a/harness_agent?user_id=u', rpc('1', method, params), { 'a2a-version': '1.0' })).body;
  const listed = (await ask('ListTasks', { contextId: session })) as { result: { tasks: { id: string }[] } };
  const taskId = listed.result.tasks[0]?.id;
  const message = { messageId: randomUUID(), contextId: session, taskId, role: 'ROLE_USER', parts: [{ text: 'two' }] };
  expect(await ask('SendMessage', { message })).toMatchObject({
    error: { message: expect.stringMatching(/it is running\..*without the taskId.*X-Double-Texting/) },
  });
  gate.answer({ text: 'over' });
  await first;
});

test('AG-UI: the client of the run sees a message that it took, with its id; one with a file, too', async () => {
  const session = await open();
  const before = gate.asked.length;
  const client = newClient(`${app.url}/ag-ui/harness_agent?user_id=u`, session);
  const first = client.say('one');
  await gate.entered(before + 1);
  const sendAgUi = (id: string, message: unknown) => {
    const messages = [{ id, role: 'user', content: message }];
    const input = { threadId: session, runId: id, messages, tools: [], context: [], state: {} };
    return app.post('/ag-ui/harness_agent?user_id=u', input, steer);
  };
  const text = sendAgUi('m-text', 'two');
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'a' }, sum);
  await gate.entered(before + 2);
  await expect.poll(() => client.messages.some(({ id }) => id === 'm-text')).toBe(true);
  const image = { type: 'image', source: { type: 'data', value: 'iVBORw0KGgo=', mimeType: 'image/png' } };
  const file = sendAgUi('m-file', [{ type: 'text', text: 'three' }, image]);
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'b' }, sum);
  await gate.entered(before + 3);
  gate.answer({ text: 'c' });
  await Promise.all([first, text, file]);
  await client.settled();
  const shown = client.messages.filter(({ role }) => role !== 'tool').map(({ id, content: said }) => [id, said]);
  expect(shown.map(([, said]) => said)).toEqual([
    'one',
    'a',
    'two',
    'b',
    [{ type: 'text', text: 'three' }, image],
    'c',
  ]);
  expect([shown[2]?.[0], shown[4]?.[0]]).toEqual(['m-text', 'm-file']);
});

test('AG-UI: the client of a message that waits for its own turn keeps it', async () => {
  const session = await open();
  const before = gate.asked.length;
  const first = run(session, 'one');
  await gate.entered(before + 1);
  const client = newClient(`${app.url}/ag-ui/harness_agent?user_id=u`, session);
  const second = client.say('two');
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'over' });
  await gate.entered(before + 2);
  gate.answer({ text: 'its own' });
  await Promise.all([first, second]);
  await client.settled();
  expect(client.messages.map(({ content: said }) => said)).toEqual(['one', 'over', 'two', 'its own']);
});

test('AI SDK: the run shows a message that it took; a page that is loaded then resumes behind it, and stops the run', async () => {
  const session = await open();
  const before = gate.asked.length;
  const chat = `/ai-sdk/harness_agent/chat/${session}`;
  const say = (text: string, headers = {}) => {
    const messages = [{ id: randomUUID(), role: 'user', parts: [{ type: 'text', text }] }];
    return app.post('/ai-sdk/harness_agent/chat?user_id=u', { id: session, messages }, headers);
  };
  const first = say('one');
  await gate.entered(before + 1);
  const second = say('two', steer);
  await expect.poll(() => countOf(session, 'queued')).toBe(1);
  gate.answer({ text: 'before' }, sum);
  await gate.entered(before + 2);
  const chunksOf = ({ text }: Pick<Answer, 'text'>) =>
    text.split('\n').flatMap((line) => {
      const data = line.slice('data: '.length);
      return line.startsWith('data: {') ? [JSON.parse(data) as Record<string, unknown>] : [];
    });
  const taken = (await list(session)).find(({ steeredInto }) => steeredInto);
  const messages = (await app.get(`${chat}/messages?user_id=u`)).body as { id: string; role: string }[];
  expect(messages.at(-1)).toMatchObject({ role: 'user', id: `${taken?.id}.message` });
  // It answers once it follows the run.
  const resumed = await fetch(`${app.url}${chat}/stream?user_id=u`);
  gate.answer({ text: 'between' }, sum);
  await gate.entered(before + 3);
  const loaded = (await app.get(`${chat}/messages?user_id=u`)).body as { id: string; role: string }[];
  expect((await app.post(`${chat}/stop?user_id=u`)).body).toEqual({ stopped: true });
  const page = chunksOf({ text: await resumed.text() });
  const [one, two] = (await Promise.all([first, second])).map(chunksOf);
  const start = { type: 'start', messageId: taken?.id };
  expect([two?.[0], page[0]]).toEqual([start, start]);
  expect(loaded.at(-1)?.id).toBe(taken?.id);
  expect(page).toEqual(two);
  const texts = page.filter(({ type }) => type === 'text-delta').map(({ delta }) => delta);
  expect(texts).toEqual(['between']);
  const data = { id: `${taken?.id}.message`, role: 'user', parts: [{ type: 'text', text: 'two' }] };
  expect(one?.filter(({ type }) => type === 'data-message')).toEqual([{ type: 'data-message', id: data.id, data }]);
  expect(two?.filter(({ type }) => type === 'data-message')).toEqual([]);
});
