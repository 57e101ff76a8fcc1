import type { Answer, TestApp } from './app.ts';

/** A message of a client. One that is sent again is the same to every door. */
export interface DoorMessage {
  userId: string;
  /** A session that is there. */
  sessionId: string;
  /** Unique: what protocols name messages, runs and calls by. */
  id: string;
  text: string;
  headers?: Record<string, string>;
}

/** How a message comes in. */
export interface MessageDoor {
  name: string;
  /** True: the answer names the invocation that answered, not the one that its request began. */
  says?: true;
  /** True: the answer is the message alone, as it is by then. */
  leaves?: true;
  send: (app: Pick<TestApp, 'post'>, message: DoorMessage) => Promise<Answer>;
}

const APP = 'harness_agent';
const MCP_VERSION = '2026-07-28';
const META = {
  'io.modelcontextprotocol/protocolVersion': MCP_VERSION,
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
};
const contentOf = (text: string) => ({ role: 'user', parts: [{ text }] });
export const rpc = (id: string, method: string, params: object) => ({ jsonrpc: '2.0', id, method, params });
/** The conversation that a session is to a client of OpenAI's. */
export const conversationOf = ({ userId, sessionId }: Pick<DoorMessage, 'userId' | 'sessionId'>): string =>
  `conv_${Buffer.from(`${APP}\n${userId}\n${sessionId}`).toString('base64url')}`;

const runAt =
  (path: string): MessageDoor['send'] =>
  (app, { userId, sessionId, text, headers }) =>
    app.post(path, { appName: APP, userId, sessionId, newMessage: contentOf(text) }, headers);

/** The setting that opens those which are not always open. */
export const DOORS_SETTING = 'a2a,ag-ui,ai-sdk,mcp,openai';

/** Every door that takes a message of a user. */
export const messageDoors: MessageDoor[] = [
  { name: 'POST /run', says: true, send: runAt('/run') },
  { name: 'POST /run_sse', send: runAt('/run_sse') },
  {
    name: 'POST /harness/invoke',
    says: true,
    send: (app, { userId, sessionId, text, headers }) => {
      const request = { user_id: userId, session_id: sessionId };
      return app.post('/harness/invoke', { prompt: text, harness_name: 'h', run_agent_request: request }, headers);
    },
  },
  {
    name: 'POST …/invocations',
    leaves: true,
    send: (app, { userId, sessionId, text, headers }) => {
      const path = `/apps/${APP}/users/${userId}/sessions/${sessionId}/invocations`;
      return app.post(path, { newMessage: contentOf(text) }, headers);
    },
  },
  ...(['SendMessage', 'SendStreamingMessage'] as const).map(
    (method): MessageDoor => ({
      name: `A2A ${method}`,
      send: (app, { userId, sessionId, id, text, headers }) => {
        const message = { messageId: id, contextId: sessionId, role: 'ROLE_USER', parts: [{ text }] };
        const path = `/a2a/${APP}?user_id=${userId}`;
        return app.post(path, rpc(id, method, { message }), { 'a2a-version': '1.0', ...headers });
      },
    }),
  ),
  {
    name: 'MCP',
    send: (app, { userId, sessionId, id, text, headers }) => {
      const call = { name: APP, arguments: { prompt: text, session: sessionId }, _meta: META };
      return app.post(`/mcp?user_id=${userId}`, rpc(id, 'tools/call', call), {
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': MCP_VERSION,
        'mcp-method': 'tools/call',
        'mcp-name': APP,
        ...headers,
      });
    },
  },
  {
    name: 'AG-UI',
    send: (app, { userId, sessionId, id, text, headers }) => {
      const messages = [{ id, role: 'user', content: text }];
      const input = { threadId: sessionId, runId: id, messages, tools: [], context: [], state: {} };
      return app.post(`/ag-ui/${APP}?user_id=${userId}`, input, headers);
    },
  },
  ...[false, true].map(
    (stream): MessageDoor => ({
      name: `OpenAI responses${stream ? ', as a stream' : ''}`,
      send: (app, message) => {
        const body = { model: APP, conversation: conversationOf(message), input: message.text, stream };
        return app.post(`/v1/responses?user_id=${message.userId}`, body, message.headers);
      },
    }),
  ),
  {
    name: 'AI SDK',
    send: (app, { userId, sessionId, id, text, headers }) => {
      const messages = [{ id, role: 'user', parts: [{ type: 'text', text }] }];
      return app.post(`/ai-sdk/${APP}/chat?user_id=${userId}`, { id: sessionId, messages }, headers);
    },
  },
];
