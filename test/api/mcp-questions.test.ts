import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Part } from '../../src/core/content.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import {
  type FakeMcp,
  type FakeMcpOptions,
  type FakeMcpTool,
  startMcpServer,
  startModernMcpServer,
} from '../support/mcp-server.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** A server asks a person in the middle of a call that acts once; another replica takes the answer. */

const form = {
  mode: 'form',
  message: 'Which seat?',
  requestedSchema: { type: 'object', properties: { seat: { type: 'string' } }, required: ['seat'] },
};
const said = (value: unknown) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });
const older: FakeMcpTool = { name: 'book', call: async (_, { ask }) => said(await ask('elicitation/create', form)) };
const newer: FakeMcpTool = {
  name: 'book',
  call: (_, { inputResponses, requestState }) =>
    inputResponses
      ? said({ ...(inputResponses['seat'] as object), requestState })
      : {
          resultType: 'input_required',
          inputRequests: { seat: { method: 'elicitation/create', params: form } },
          requestState: 'kept',
        },
};

const made = { taskId: 't1', createdAt: '', lastUpdatedAt: '', ttlMs: null, pollIntervalMs: 0 };
/** The server's task asks, and has its answer by `tasks/update`. */
function withTask(): FakeMcpOptions {
  let seat: unknown;
  const asking = { status: 'input_required', inputRequests: { seat: { method: 'elicitation/create', params: form } } };
  return {
    capabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } },
    methods: {
      'tasks/get': () => ({ ...made, ...(seat ? { status: 'completed', result: said(seat) } : asking) }),
      'tasks/update': (_, inputResponses) => {
        seat = inputResponses?.['seat'];
        return {};
      },
    },
  };
}
const begins = { name: 'book', call: () => ({ ...made, resultType: 'task', status: 'working' }) };

const servers: FakeMcp[] = [];
const app = staged(() => startApp());
const other = staged(() => startOn(app.databaseUrl, {}));
const sql = stagedSql(app);
beforeAll(async () => {
  servers.push(
    await startMcpServer([older]),
    await startModernMcpServer([newer]),
    await startModernMcpServer([begins], withTask()),
  );
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.close()));
});

test.each([
  ['2025-11-25', 0, {}],
  ['2026-07-28', 1, { requestState: 'kept' }],
  ['2026-07-28 in a task', 2, {}],
])('a question of a server of %s is answered by `/run`, on another replica', async (era, index, more) => {
  const at = { appName: 'harness_agent', userId: 'u', sessionId: era };
  const harness = { mcp_servers: [{ name: 'docs', url: servers[index]?.url }] };
  await app.post('/apps/harness_agent/users/u/sessions', { sessionId: era });
  const run = async (to: Pick<TestApp, 'post'>, part: Part, own = {}) => {
    const { body } = await to.post('/run', { ...at, newMessage: { role: 'user', parts: [part] }, harness, ...own });
    return body as { invocationId: string; content: { parts: Part[] }; longRunningToolIds?: string[] }[];
  };
  const rows = async () =>
    (await sql.query('select state, attempt from tool_calls where session_id = $1', [era])).rows as unknown;
  const asked = await run(app, { text: 'use book {}' });
  const [request] = asked.flatMap(({ longRunningToolIds: ids, content }) =>
    content.parts.flatMap(({ functionCall }) =>
      functionCall && ids?.includes(functionCall.id ?? '') ? functionCall : [],
    ),
  );
  expect(request?.args?.['toolConfirmation']).toMatchObject({ payload: { seat: null } });
  expect(await rows()).toEqual([{ state: 'settled', attempt: 1 }]);
  const response = { confirmed: true, payload: { seat: '4A' } };
  const functionResponse = { id: request?.id ?? '', name: request?.name ?? '', response };
  const answered = await run(client(other.url), { functionResponse }, { invocationId: asked[0]?.invocationId });
  const [result] = answered.flatMap(({ content }) => content.parts.flatMap((part) => part.functionResponse ?? []));
  expect(JSON.parse(String(result?.response?.['result']))).toEqual({
    action: 'accept',
    content: { seat: '4A' },
    ...more,
  });
  expect(await rows()).toEqual([{ state: 'done', attempt: 2 }]);
});
