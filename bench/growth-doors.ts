import { type Operation, type Request, text, USER } from './growth-request.ts';
import { APP } from './seed.ts';

/** The part of `npm run bench -- growth` that is about the protocols of other clients. */

const AS_USER = `user_id=${USER}`;
const A2A = `/a2a/${APP}`;
const PUSHES = `${A2A}/tasks/{a2aTask}/pushNotificationConfigs`;
const AG_UI = `/ag-ui/${APP}`;
const CHAT = `/ai-sdk/${APP}/chat`;
const STREAM = `/durable-streams/${APP}/sessions/seeded`;
const REVISION = '2026-07-28';

const toRunInput = (threadId: string, id: string) => ({
  threadId,
  runId: `run-${id}`,
  messages: [{ id: `m-${id}`, role: 'user', content: 'hello' }],
  tools: [],
  context: [],
  state: {},
  forwardedProps: {},
});

/** A message of MCP as a client of its newest revision sends it; one that can do tasks is answered with a task. */
export function call(
  method: string,
  params: Record<string, unknown> = {},
  { path = `/mcp/${APP}`, canDoTasks = true } = {},
): Request {
  const named = params['name'] ?? params['uri'] ?? params['taskId'];
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientCapabilities': canDoTasks
      ? { extensions: { 'io.modelcontextprotocol/tasks': {} } }
      : {},
  };
  return {
    method: 'POST',
    path: `${path}?${AS_USER}`,
    headers: {
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': REVISION,
      'mcp-method': method,
      ...(typeof named === 'string' && { 'mcp-name': named }),
    },
    body: { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } },
  };
}
const read = (path: string): Operation => {
  const query = path.includes('?') ? '&' : '?';
  return () => ({ method: 'GET', path: `${path}${query}${AS_USER}` });
};

export const DOORS: Record<string, Operation> = {
  'AG-UI: run': (n) => ({ method: 'POST', path: `${AG_UI}?${AS_USER}`, body: toRunInput(`ag${n}`, `${n}`) }),
  'AG-UI: connect': () => ({
    method: 'POST',
    path: `${AG_UI}/connect?${AS_USER}`,
    body: { ...toRunInput('seeded', 'none'), messages: [] },
  }),
  'AG-UI: read a thread': () => ({ method: 'GET', path: `${AG_UI}/seeded?${AS_USER}`, isEndless: true }),
  'AI SDK: send a message': (n) => ({
    method: 'POST',
    path: `${CHAT}?${AS_USER}`,
    body: { id: `ai${n}`, messages: [{ id: `m${n}`, role: 'user', parts: text('hello').parts.map(toPart) }] },
  }),
  'AI SDK: resume': read(`${CHAT}/seeded/stream?startIndex=0`),
  'AI SDK: messages': read(`${CHAT}/seeded/messages`),
  'AI SDK: stop': () => ({ method: 'POST', path: `${CHAT}/seeded/stop?${AS_USER}` }),
  'durable stream of a session': read(STREAM),
  'durable stream of an invocation': read(`${STREAM}/invocations/{invocation}`),
  'A2A: send a message': (n) => ({
    method: 'POST',
    path: `${A2A}/message:send?${AS_USER}`,
    body: { message: { messageId: `a2a${n}`, role: 'ROLE_USER', parts: [{ text: 'hello' }] } },
    keep: ['a2aTask', /"task": ?{"id": ?"([^"]+)"/],
  }),
  'A2A: get a task': read(`${A2A}/tasks/{a2aTask}`),
  'A2A: list tasks': read(`${A2A}/tasks?pageSize=20`),
  'A2A: have an address told': () => ({
    method: 'POST',
    path: `${PUSHES}?${AS_USER}`,
    body: { id: 'p', url: 'https://client.example/told' },
  }),
  'A2A: list addresses': read(PUSHES),
  'A2A: get an address': read(`${PUSHES}/p`),
  'A2A: delete an address': () => ({ method: 'DELETE', path: `${PUSHES}/p?${AS_USER}` }),
  'A2A: call': () => ({
    method: 'POST',
    path: `${A2A}?${AS_USER}`,
    headers: { 'a2a-version': '1.0' },
    body: { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: '{a2aTask}' } },
  }),
  'MCP: list tools': () => call('tools/list', {}, { path: '/mcp' }),
  'MCP: call as a task': (n) => ({
    ...call('tools/call', { name: APP, arguments: { prompt: 'hello' } }),
    keep: [`task${n}`, /"taskId": ?"([^"]+)"/],
  }),
  'MCP: get a task': () => call('tasks/get', { taskId: '{task0}' }),
  'MCP: cancel a task': () => call('tasks/cancel', { taskId: '{task0}' }),
  'MCP: list resources': () => call('resources/list'),
  'OpenAI: list models': read('/v1/models'),
  'OpenAI: get a model': read(`/v1/models/${APP}`),
  'OpenAI: answer': () => ({
    method: 'POST',
    path: `/v1/responses?${AS_USER}`,
    body: { model: APP, input: 'hello' },
    keep: ['response', /"id": ?"(resp_[^"]+)"/],
  }),
  'OpenAI: get an answer': read('/v1/responses/{response}'),
  'OpenAI: what was asked': read('/v1/responses/{response}/input_items'),
  'OpenAI: chat': () => ({
    method: 'POST',
    path: `/v1/chat/completions?${AS_USER}`,
    body: { model: APP, messages: [{ role: 'user', content: 'hello' }] },
  }),
  'OpenAI: make a conversation': () => ({
    method: 'POST',
    path: `/v1/conversations?${AS_USER}&app_name=${APP}`,
    body: {},
    keep: ['conversation', /"id": ?"(conv_[^"]+)"/],
  }),
  'OpenAI: get a conversation': read('/v1/conversations/{conversation}'),
  'OpenAI: change a conversation': (n) => ({
    method: 'POST',
    path: `/v1/conversations/{conversation}?${AS_USER}`,
    body: { metadata: { n: `${n}` } },
  }),
  'OpenAI: add to a conversation': (n) => ({
    method: 'POST',
    path: `/v1/conversations/{conversation}/items?${AS_USER}`,
    body: { items: [{ role: 'user', content: `hello ${n}` }] },
  }),
  'OpenAI: list what was said': read('/v1/conversations/{conversation}/items?limit=5'),
};

function toPart({ text: said }: { text: string }) {
  return { type: 'text', text: said };
}
