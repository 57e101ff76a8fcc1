import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { guardrail } from '../../src/agent/definition/guardrail.ts';
import type { LiveConnection, LiveMessage, LiveModel, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { openLive } from '../support/live-client.ts';
import { rpc } from '../support/mcp-client.ts';
import { startMcpServer } from '../support/mcp-server.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { leastStatements } from '../support/store.ts';

/**
 * Every way in, by which door and role and as what: a guardrail lets none of it come to the model. An application
 * without one shows that each way leads there.
 */

const WORD = 'FORBIDDEN-1234';
const SAID = 'Nothing of that kind.';
const AGENT = 'harness_agent';
const SESSIONS = `/apps/${AGENT}/users/user/sessions`;

/** Names of the tools that the model calls where the last message says so. */
const plain = {
  description: 'Works.',
  parameters: { type: 'object' },
  needsConfirmation: false,
  effect: 'none',
} as const;
const ask: Tool = { ...plain, name: 'ask', longRunning: true, run: async () => undefined };
const parcel: Tool = { ...ask, name: 'parcel', wait: { kind: 'signal', signal: 'parcel' } };
const form: Tool = {
  ...plain,
  name: 'form',
  run: async (_args, { confirmation, actions, functionCallId }) => {
    if (confirmation) return { given: confirmation.payload };
    actions.requestedToolConfirmations = { [functionCallId]: { hint: 'Which?', confirmed: false, kept: { n: 1 } } };
    return { error: 'A person is asked.' };
  },
};
const TOOLS = [ask, parcel, form];
const NAMES = [...TOOLS.map(({ name }) => name), 'load_artifacts', 'list_artifacts', 'load_memory'];
const ARGS: Record<string, JsonObject> = { load_artifacts: { names: ['note'] }, load_memory: { query: 'remembered' } };

/** A service, and what its model was sent. */
interface Side extends Pick<TestApp, 'post' | 'get' | 'send' | 'url'> {
  requests: ModelRequest[];
}

const HEARD = { modelName: 'live', instruction: '', tools: [], sampling: {}, signal: new AbortController().signal };

/** A live API that answers each content that is typed. */
function newConnection(requests: ModelRequest[]): LiveConnection {
  const messages: LiveMessage[] = [];
  let came = Promise.withResolvers<void>();
  return {
    send(input) {
      if (input.kind !== 'content') return;
      requests.push({ ...HEARD, contents: [input.content] });
      messages.push({ parts: [{ text: 'Heard.' }] }, { turnComplete: true });
      came.resolve();
    },
    async ready() {
      if (messages.length === 0) await came.promise;
    },
    peek: () => messages[0],
    shift() {
      const first = messages.shift();
      if (messages.length === 0) came = Promise.withResolvers();
      return first;
    },
    cancelled: () => new AbortController().signal,
    close: () => undefined,
  };
}

async function startSide(isGuarded: boolean): Promise<Side & { close: () => Promise<void> }> {
  const model = scriptedModel([
    ({ contents }) => {
      const last = contents.at(-1);
      const word = last?.parts?.at(-1)?.text ?? '';
      const isAnswered = getFunctionResponses(last).length > 0;
      // What no guardrail looks at: the words of the model.
      if (word === 'spell') return [{ text: WORD }];
      return !isAnswered && NAMES.includes(word) ? [callPart(word, ARGS[word])] : [{ text: `Done with ${word}.` }];
    },
  ]);
  const guard = guardrail({ name: 'words', at: ['input', 'results'], check: [/FORBIDDEN-\d+/], message: SAID });
  const live: LiveModel = {
    modelName: 'live',
    connect: async ({ instruction, contents, tools }) => {
      model.requests.push({ ...HEARD, instruction, contents, tools });
      return newConnection(model.requests);
    },
  };
  const agents = hostAgent({ ...model, live }, TOOLS, {
    tools: NAMES,
    instruction: 'Answer. {topic?} {user:mood?} {artifact.brief?}',
    ...(isGuarded && { plugins: [guard] }),
  });
  const app = await startApp({}, { agents });
  return { ...app, requests: model.requests };
}

let guarded: Awaited<ReturnType<typeof startSide>>;
let open: typeof guarded;
let forms: Awaited<ReturnType<typeof startMcpServer>>;
beforeAll(async () => {
  [guarded, open] = await Promise.all([startSide(true), startSide(false)]);
  forms = await startMcpServer([{ name: 'look', description: WORD, inputSchema: { type: 'object' } }] as never);
});
afterAll(async () => {
  await guarded?.close();
  await open?.close();
  await forms?.close();
});
beforeEach(() => {
  guarded.requests.length = 0;
  open.requests.length = 0;
});

/** True where the word stands in a text of the requests, or in a file of them. */
function isSeen(value: unknown): boolean {
  if (typeof value === 'object' && value !== null)
    return joined(value).includes(WORD) || Object.entries(value).some(([key, each]) => isSeen(key) || isSeen(each));
  if (typeof value !== 'string') return false;
  const decoded = Buffer.from(value.replace(/^data:[^,]*,/, ''), 'base64')
    .toString()
    .replaceAll('\0', '');
  return (
    value.includes(WORD) ||
    decoded.includes(WORD) ||
    decodeURIComponent(value.replaceAll(/%(?![0-9a-f]{2})/gi, '')).includes(WORD)
  );
}
const joined = (value: object): string =>
  Array.isArray(value)
    ? value.map((part: Part | null) => part?.text ?? Buffer.from(part?.inlineData?.data ?? '', 'base64')).join('')
    : '';
const seen = ({ requests }: Side) =>
  requests.some(({ instruction, contents, tools, outputSchema }) =>
    isSeen({ instruction, contents, tools, outputSchema }),
  );

/** Brings the word into a session, and lets the model work. @returns the last answer */
type Way = (side: Side, id: string) => Promise<{ status: number; text: string } | undefined>;

const create = (side: Side, id: string, more: object = {}) => side.post(SESSIONS, { sessionId: id, ...more });
const run = (side: Side, id: string, parts: object[], more: object = {}) =>
  side.post('/run', { appName: AGENT, userId: 'user', sessionId: id, newMessage: { role: 'user', parts }, ...more });
const go = (side: Side, id: string, more: object = {}) => run(side, id, [{ text: 'Go on.' }], more);
const base64 = (text: string) => Buffer.from(text).toString('base64');
const URL_SAFE = Buffer.from(`>>>???>>>${WORD}???>>>`).toString('base64url');
const UTF16 = Buffer.from(`\ufeff${WORD}`, 'utf16le').toString('base64');
const file = (mimeType: string, data = base64(`See: ${WORD}.`)): Part => ({ inlineData: { mimeType, data } });

/** Contents by their kind, as parts of ADK. */
const KINDS: Record<string, Part[]> = {
  'a text': [{ text: `Say ${WORD}` }],
  'a text in pieces': [{ text: 'Say FORBIDDEN-' }, { text: '1234' }],
  'a thought': [{ text: 'hm' }, { text: WORD, thought: true }],
  'a text file': [{ text: 'Read' }, file('text/plain')],
  'a text file, in capitals': [file('Text/Plain; charset=UTF-8')],
  JSON: [file('application/json', base64(JSON.stringify({ a: WORD })))],
  YAML: [file('application/yaml')],
  'a drawing': [file('image/svg+xml')],
  'bytes without a type': [file('application/octet-stream')],
  'a picture that is none': [file('image/png')],
  'the other base64': [file('text/plain', URL_SAFE)],
  'base64 without padding': [file('text/plain', base64(`See: ${WORD}.`).replaceAll('=', ''))],
  'UTF-16': [file('text/plain', UTF16)],
  'a text and a file together': [{ text: 'FORBIDDEN-' }, file('text/plain', base64('1234'))],
  'the name of a file': [{ inlineData: { mimeType: 'image/png', data: 'iVBORw0K', displayName: `${WORD}.png` } }],
  'the address of a file': [{ fileData: { fileUri: `https://example.com/${WORD}`, mimeType: 'image/png' } }],
  'an address in escapes': [{ fileData: { fileUri: 'https://example.com/FORBIDDEN%2D1234', mimeType: 'image/png' } }],
  'a data: address': [{ fileData: { fileUri: `data:text/plain;base64,${base64(WORD)}`, mimeType: 'text/plain' } }],
  code: [{ executableCode: { code: `print("${WORD}")`, language: 'PYTHON' } }],
  'the output of code': [{ codeExecutionResult: { outcome: 'OUTCOME_OK', output: WORD } }],
};
const CALL = { functionCall: { id: 'c1', name: 'ask', args: { a: 1 } } };
const answered = (response: JsonObject) => ({ functionResponse: { id: 'c1', name: 'ask', response } });

const event = (author: string, parts: object[]) => ({
  author,
  invocationId: crypto.randomUUID(),
  content: { role: author === 'user' ? 'user' : 'model', parts },
});
const append = async (side: Side, id: string, ...events: object[]) => {
  for (const each of events) await side.post(`${SESSIONS}/${id}/events`, each);
};
const chat = (side: Side, messages: object[], more: object = {}) =>
  side.post('/v1/chat/completions', { model: AGENT, messages, ...more });
const responses = (side: Side, input: unknown, more: object = {}) =>
  side.post('/v1/responses', { model: AGENT, input, ...more });
const clientTool = { name: 'look', description: `Looks for ${WORD}`, parameters: { type: 'object', properties: {} } };
const GO = { role: 'user', content: 'Go on.' };
const agui = (side: Side, id: string, messages: object[], more: object = {}) =>
  side.post(`/ag-ui/${AGENT}`, { threadId: id, runId: crypto.randomUUID(), messages, ...more });
const a2a = (side: Side, parts: object[]) =>
  side.post(
    `/a2a/${AGENT}`,
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'SendMessage',
      params: { message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts } },
    },
    { 'a2a-version': '1.0' },
  );
const sdk = (side: Side, id: string, parts: object[]) =>
  side.post(`/ai-sdk/${AGENT}/chat`, { id, messages: [{ id: 'm', role: 'user', parts }] });
const artifact = (side: Side, id: string, name: string, part: Part) =>
  side.post(`${SESSIONS}/${id}/artifacts`, { filename: name, artifact: part });

const openCall = async (side: Side, id: string, name: string): Promise<string> => {
  await create(side, id);
  const asked = await run(side, id, [{ text: name }]);
  const calls = (asked.body as { longRunningToolIds?: string[] }[]).flatMap(({ longRunningToolIds: ids }) => ids ?? []);
  return calls.at(-1) ?? '';
};
const answer = async (side: Side, id: string, tool: string, name: string, response: object) => {
  const call = await openCall(side, id, tool);
  return run(side, id, [{ functionResponse: { id: call, name, response } }]);
};
const task = async (side: Side, id: string) =>
  ((await side.get(`/tasks?sessionId=${id}`)).body as { items: { id: string }[] }).items[0]?.id;
const ended = async (side: Side, id: string) => {
  const statusOf = async () =>
    ((await side.get(`${SESSIONS}/${id}/invocations`)).body as { status: string }[]).map(({ status }) => status);
  await expect.poll(statusOf).toEqual(['succeeded']);
  return side.get(`${SESSIONS}/${id}`);
};

const talk = async (side: Side, id: string, parts: Part[] = [{ text: 'Go on.' }]) => {
  const live = await openLive(side, { app_name: AGENT, user_id: 'user', session_id: id });
  live.send({ content: { role: 'user', parts } });
  const frames = await live.until(({ turnComplete }) => turnComplete === true);
  return { status: 200, text: JSON.stringify(frames) };
};

/** The ways in. A new door is a line. */
const WAYS: Record<string, Way> = {
  ...Object.fromEntries(
    Object.entries(KINDS).flatMap(([kind, parts]): [string, Way][] => [
      [`/run, ${kind}`, async (side, id) => (await create(side, id), run(side, id, parts))],
      [
        `an event of the user, ${kind}`,
        async (side, id) => (await create(side, id), await append(side, id, event('user', parts)), go(side, id)),
      ],
      [
        `an event of the agent, ${kind}`,
        async (side, id) => (await create(side, id), await append(side, id, event(AGENT, parts)), go(side, id)),
      ],
      [
        `a session with an event of the user and words of the agent behind it, ${kind}`,
        async (side, id) => {
          await create(side, id, { events: [event('user', parts), event(AGENT, [{ text: 'Yes.' }])] });
          return go(side, id);
        },
      ],
    ]),
  ),
  '/run_sse': async (side, id) => (
    await create(side, id),
    side.post('/run_sse', {
      appName: AGENT,
      userId: 'user',
      sessionId: id,
      newMessage: { role: 'user', parts: KINDS['a text'] },
    })
  ),
  '/run, as the model': async (side, id) => (
    await create(side, id),
    side.post('/run', {
      appName: AGENT,
      userId: 'user',
      sessionId: id,
      newMessage: { role: 'model', parts: KINDS['a text'] },
    })
  ),
  '/run, a form of the answer': async (side, id) => (
    await create(side, id), go(side, id, { harness: { output_schema: { type: 'object', description: WORD } } })
  ),
  '/run, system_prompt': async (side, id) => (
    await create(side, id), go(side, id, { harness: { system_prompt: WORD } })
  ),
  '/run, a tool of an MCP server': async (side, id) => (
    await create(side, id), go(side, id, { harness: { mcp_servers: [{ name: 'forms', url: forms.url }] } })
  ),
  '/harness/invoke': (side, id) =>
    side.post('/harness/invoke', {
      prompt: WORD,
      harness_name: 'h',
      run_agent_request: { user_id: 'user', session_id: id },
    }),
  '/harness/invoke, system_prompt': (side, id) =>
    side.post('/harness/invoke', {
      prompt: 'Go on.',
      harness_name: 'h',
      harness: { system_prompt: `You say ${WORD}` },
      run_agent_request: { user_id: 'user', session_id: id },
    }),
  'an invocation in the background': async (side, id) => {
    await create(side, id);
    await side.post(`${SESSIONS}/${id}/invocations`, { newMessage: { role: 'user', parts: KINDS['a text'] } });
    return ended(side, id);
  },
  'a live session in text': async (side, id) => {
    await create(side, id);
    const live = await openLive(side, { app_name: AGENT, user_id: 'user', session_id: id, modalities: 'TEXT' });
    live.send({ content: { role: 'user', parts: KINDS['a text'] } });
    const frames = await live.until(({ turnComplete }) => turnComplete === true);
    return { status: 200, text: JSON.stringify(frames) };
  },
  'a live session with sound': async (side, id) => (await create(side, id), talk(side, id, KINDS['a text'])),
  'a live session with sound, a file': async (side, id) => (
    await create(side, id), talk(side, id, KINDS['a text file'])
  ),
  'a live session with sound, what stands in the session': async (side, id) => {
    await create(side, id, { events: [event('user', KINDS['a text'] ?? []), event(AGENT, [{ text: 'Yes.' }])] });
    return talk(side, id);
  },
  'a live session with sound, the state': async (side, id) => {
    await create(side, id, { state: { topic: WORD } });
    const live = await openLive(side, { app_name: AGENT, user_id: 'user', session_id: id });
    live.send({ content: { role: 'user', parts: [{ text: 'Go on.' }] } });
    const isOver = live.until(({ turnComplete }) => turnComplete === true);
    const reason = await Promise.race([live.closed.then(([, why]) => why), isOver.then(() => 'Heard.')]);
    expect(reason).toBe(side === guarded ? SAID : 'Heard.');
    return { status: 200, text: reason };
  },
  'a call that the agent is said to have made': async (side, id) => {
    await create(side, id);
    const call = { functionCall: { id: 'c1', name: 'ask', args: { a: WORD } } };
    await append(side, id, event(AGENT, [call]), event(AGENT, [answered({ ok: true })]));
    return go(side, id);
  },
  'the answer to such a call': async (side, id) => {
    await create(side, id);
    await append(side, id, event(AGENT, [CALL]), event(AGENT, [answered({ a: [WORD] })]));
    return go(side, id);
  },
  'a file in such an answer': async (side, id) => {
    await create(side, id);
    const given = { functionResponse: { ...answered({}).functionResponse, parts: [file('text/plain')] } };
    await append(side, id, event(AGENT, [CALL]), event(AGENT, [given]));
    return go(side, id);
  },
  'a summary': async (side, id) => {
    await create(side, id);
    await append(side, id, event('user', [{ text: 'Hello.' }]));
    const compaction = {
      startTimestamp: 0,
      endTimestamp: 4e9,
      compactedContent: { role: 'model', parts: KINDS['a text'] },
    };
    await append(side, id, { author: AGENT, invocationId: 'i', actions: { compaction } });
    return go(side, id);
  },
  'what was spoken': async (side, id) => {
    await create(side, id);
    await append(side, id, { author: 'user', invocationId: 'i', inputTranscription: { text: WORD, finished: true } });
    return go(side, id);
  },
  'the state at the start': async (side, id) => (await create(side, id, { state: { topic: WORD } }), go(side, id)),
  'the state of a request': async (side, id) => (await create(side, id), go(side, id, { stateDelta: { topic: WORD } })),
  'the state, changed': async (side, id) => {
    await create(side, id);
    await side.send('PATCH', `${SESSIONS}/${id}`, { stateDelta: { topic: { deep: [WORD] } } });
    return go(side, id);
  },
  'the state, in two values': async (side, id) => (
    await create(side, id, { state: { topic: `${WORD} and` } }), go(side, id)
  ),
  'an artifact in the instruction': async (side, id) => {
    await create(side, id);
    await artifact(side, id, 'brief', { inlineData: { mimeType: 'text/plain', data: base64(WORD) } });
    return go(side, id);
  },
  'an artifact that is loaded': async (side, id) => {
    await create(side, id);
    await artifact(side, id, 'note', { inlineData: { mimeType: 'text/plain', data: base64(WORD) } });
    return run(side, id, [{ text: 'load_artifacts' }]);
  },
  'an artifact of another type that is loaded': async (side, id) => {
    await create(side, id);
    await artifact(side, id, 'note', { inlineData: { mimeType: 'application/xml', data: base64(WORD) } });
    return run(side, id, [{ text: 'load_artifacts' }]);
  },
  'the name of an artifact': async (side, id) => {
    await create(side, id);
    await artifact(side, id, WORD, { text: 'x' });
    return run(side, id, [{ text: 'list_artifacts' }]);
  },
  'a memory': async (side, id) => {
    const users = `/apps/${AGENT}/users/memory-${id}`;
    await side.post(`${users}/sessions`, { sessionId: id, events: [event('user', [{ text: `remembered ${WORD}` }])] });
    await side.send('PATCH', `${users}/memory`, { sessionId: id });
    await side.post(`${users}/sessions`, { sessionId: `${id}-2` });
    const newMessage = { role: 'user', parts: [{ text: 'load_memory' }] };
    return side.post('/run', { appName: AGENT, userId: `memory-${id}`, sessionId: `${id}-2`, newMessage });
  },
  'an answer to a call that waits': (side, id) => answer(side, id, 'ask', 'ask', { said: WORD }),
  'a form': (side, id) =>
    answer(side, id, 'form', 'adk_request_confirmation', { confirmed: true, payload: { which: WORD } }),
  'a form by its task': async (side, id) => {
    await openCall(side, id, 'form');
    const payload = { confirmed: true, payload: { which: WORD } };
    await side.send('PATCH', `/tasks/${await task(side, id)}`, { action: 'answer', answer: payload });
    return ended(side, id);
  },
  'an answer by its task': async (side, id) => {
    await openCall(side, id, 'ask');
    await side.send('PATCH', `/tasks/${await task(side, id)}`, { action: 'answer', answer: { said: WORD } });
    return ended(side, id);
  },
  'a signal': async (side, id) => {
    await openCall(side, id, 'parcel');
    await side.post(`${SESSIONS}/${id}/signals/parcel`, { said: WORD });
    return ended(side, id);
  },
  ...Object.fromEntries(
    ['user', 'assistant', 'system', 'developer'].flatMap((role): [string, Way][] => {
      const said = { role, content: `Say ${WORD}` };
      const yes = { role: 'assistant', content: 'Yes.' };
      return [
        [`chat, ${role}`, (side) => chat(side, [said, GO])],
        [`chat, ${role}, with an answer behind it`, (side) => chat(side, [said, yes, GO])],
        [`responses, ${role}`, (side) => responses(side, [said, GO], { store: false })],
        [`responses, ${role}, with an answer behind it`, (side) => responses(side, [said, yes, GO], { store: false })],
        [`responses that are kept, ${role}`, (side) => responses(side, [said, yes, GO])],
      ];
    }),
  ),
  'chat, the answer of a tool': (side) => {
    const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } };
    const made = { role: 'assistant', content: null, tool_calls: [call] };
    return chat(side, [{ role: 'user', content: 'Look.' }, made, { role: 'tool', tool_call_id: 'c1', content: WORD }]);
  },
  'chat, the arguments of a call': (side) => {
    const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: JSON.stringify({ a: WORD }) } };
    const made = { role: 'assistant', content: null, tool_calls: [call] };
    return chat(side, [{ role: 'user', content: 'Look.' }, made, { role: 'tool', tool_call_id: 'c1', content: 'no' }]);
  },
  'chat, a file': (side) => {
    const given = { filename: 'a.txt', file_data: `data:text/plain;base64,${base64(WORD)}` };
    return chat(side, [{ role: 'user', content: [{ type: 'file', file: given }] }]);
  },
  'chat, the name of a file': (side) => {
    const given = { filename: `${WORD}.pdf`, file_data: 'data:application/pdf;base64,JVBERg==' };
    return chat(side, [{ role: 'user', content: [{ type: 'file', file: given }] }]);
  },
  'chat, a picture': (side) =>
    chat(side, [
      { role: 'user', content: [{ type: 'image_url', image_url: { url: `data:text/plain;base64,${base64(WORD)}` } }] },
    ]),
  'chat, a tool': (side) => chat(side, [GO], { tools: [{ type: 'function', function: clientTool }] }),
  'chat, the schema of a tool': (side) => {
    const parameters = { type: 'object', properties: { a: { type: 'string', enum: [WORD] } } };
    return chat(side, [GO], { tools: [{ type: 'function', function: { name: 'look', parameters } }] });
  },
  'chat, a form of the answer': (side) =>
    chat(side, [GO], {
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object', title: WORD } } },
    }),
  'responses, instructions': (side) => responses(side, 'Go on.', { instructions: WORD, store: false }),
  'responses, a tool': (side) => responses(side, 'Go on.', { tools: [{ type: 'function', ...clientTool }] }),
  'responses, the answer of a tool': (side) =>
    responses(side, [
      { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: WORD },
    ]),
  'a conversation': async (side) => {
    const items = [
      { role: 'user', content: WORD },
      { role: 'assistant', content: 'Yes.' },
    ];
    const made = await side.post('/v1/conversations', { items, metadata: { model: AGENT } });
    return responses(side, 'Go on.', { conversation: (made.body as { id: string }).id });
  },
  'AG-UI': (side, id) => agui(side, id, [{ id: 'm', role: 'user', content: WORD }]),
  'AG-UI, a fact': (side, id) =>
    agui(side, id, [{ id: 'm', role: 'user', content: 'Go on.' }], { context: [{ description: 'It', value: WORD }] }),
  'AG-UI, a document': (side, id) => {
    const source = { type: 'data', value: base64(WORD), mimeType: 'text/markdown' };
    return agui(side, id, [{ id: 'm', role: 'user', content: [{ type: 'document', source }] }]);
  },
  'AG-UI, a tool': (side, id) =>
    agui(side, id, [{ id: 'm', role: 'user', content: 'Go on.' }], { tools: [clientTool] }),
  'AI SDK': (side, id) => sdk(side, id, [{ type: 'text', text: WORD }]),
  'AI SDK, a file': (side, id) =>
    sdk(side, id, [{ type: 'file', mediaType: 'text/plain', url: `data:text/plain;base64,${base64(WORD)}` }]),
  A2A: (side) => a2a(side, [{ text: WORD }]),
  'A2A, a file': (side) => a2a(side, [{ raw: base64(WORD), mediaType: 'text/plain', filename: 'a.txt' }]),
  'A2A, the name of a file': (side) =>
    a2a(side, [{ raw: 'iVBORw0K', mediaType: 'image/png', filename: `${WORD}.png` }]),
  'A2A, data': (side) => a2a(side, [{ data: { a: WORD } }]),
  MCP: async (side) => {
    // A client that can do tasks would get one before the model is asked.
    const call = { name: AGENT, arguments: { prompt: WORD } };
    const { status, result, error } = await rpc(`${side.url}/mcp/${AGENT}`, 'tools/call', call, { capabilities: {} });
    return { status, text: JSON.stringify([result, error]) };
  },
};

const names = Object.keys(WAYS);

describe(`what comes from outside, by ${names.length} ways`, () => {
  test.each(names)('%s', async (name) => {
    const way = WAYS[name] as Way;
    const id = crypto.randomUUID();
    const [checked, plainly] = [await way(guarded, id), await way(open, id)];
    // Without a guardrail it comes to the model: the way is one.
    expect([plainly?.text.slice(0, 300), seen(open)]).toEqual([expect.anything(), true]);
    expect([checked?.status, seen(guarded)]).toEqual([200, false]);
  });
});

test('what was blocked is answered with the sentence, and stays out of the turns behind it, in the store too', async () => {
  const id = crypto.randomUUID();
  await create(guarded, id);
  const blocked = await run(guarded, id, KINDS['a text'] ?? []);
  expect((blocked.body as { content: object }[]).at(-1)?.content).toMatchObject({ parts: [{ text: SAID }] });
  const next = await go(guarded, id);
  expect((next.body as { content: object }[]).at(-1)?.content).toMatchObject({
    parts: [{ text: 'Done with Go on..' }],
  });
  expect(guarded.requests.map(({ contents }) => contents.map(({ parts }) => parts?.[0]?.text))).toEqual([
    ['[redacted]', SAID, 'Go on.'],
  ]);
  const copy = await guarded.post(`${SESSIONS}/${id}/fork`, { sessionId: `${id}-copy` });
  expect(copy.status).toBe(200);
  await go(guarded, `${id}-copy`);
  expect([guarded.requests.length, seen(guarded)]).toEqual([2, false]);
});

test('words of the model itself pass, also in a copy of the session, and not where a client brings them', async () => {
  const id = crypto.randomUUID();
  await create(guarded, id);
  await run(guarded, id, [{ text: 'spell' }]);
  const { events } = (await guarded.get(`${SESSIONS}/${id}`)).body as { events: object[] };
  expect(JSON.stringify(events)).toContain(WORD);
  await guarded.post(`${SESSIONS}/${id}/fork`, { sessionId: `${id}-copy` });
  await create(guarded, `${id}-brought`, { events });
  guarded.requests.length = 0;
  await go(guarded, id);
  await go(guarded, `${id}-copy`);
  expect(guarded.requests.map(({ contents }) => contents.length)).toEqual([3, 3]);
  await go(guarded, `${id}-brought`);
  expect(guarded.requests).toHaveLength(2);
});

test('a guardrail costs no statement', async () => {
  const id = crypto.randomUUID();
  const turn = (side: Side) => () => side.post('/harness/invoke', invokeBody(id));
  const invokeBody = (session_id: string) => ({
    prompt: 'Hello.',
    harness_name: 'h',
    run_agent_request: { user_id: 'user', session_id },
  });
  await turn(guarded)();
  await turn(open)();
  // One of them reads the artifact that the instruction names.
  expect([await leastStatements(4, turn(open)), await leastStatements(4, turn(guarded))]).toEqual([4, 4]);
});
