import express from 'express';
import { Pool } from 'pg';
import { answerTo, isForHttp, LOOKED_UP, USAGE } from './script.js';
import { STATEMENTS } from './statements.js';

/**
 * The limit: the same answers from bare Express and `pg`, one prepared statement per step, on the tables of the
 * runtime. No validation, no credentials, no leases, no queue, no idempotency.
 * `node servers/express.js <port> <url of the database> <url of the model>`
 */

const [port, connectionString, modelUrl] = process.argv.slice(2);
const pool = new Pool({ connectionString, max: 10 });
const app = express();
app.disable('x-powered-by');
app.disable('etag');
app.use(express.json({ limit: '10mb' }));

const query = async (name, values) => (await pool.query({ name, text: STATEMENTS[name], values })).rows[0]?.text;
const sendText = (response, text) => response.type('json').send(text);
const SESSIONS = '/apps/:app/users/:user/sessions';

app.get('/health', (_, response) => sendText(response, '{"status":"ok"}'));
app.get(SESSIONS, async ({ params: { app: name, user } }, response) =>
  sendText(response, await query('list', [name, user])),
);
app.post(SESSIONS, async ({ params: { app: name, user }, body }, response) =>
  sendText(response, await query('create', [name, user, body.sessionId, JSON.stringify(body.state ?? {})])),
);
app.get(`${SESSIONS}/:session`, async ({ params: { app: name, user, session } }, response) =>
  sendText(response, await query('get', [name, user, session])),
);
app.get(`${SESSIONS}/:session/artifacts/:artifact/versions/:version/metadata`, async ({ params }, response) => {
  const { app: name, user, session, artifact, version } = params;
  sendText(response, await query('artifact', [name, user, session, artifact, version]));
});

async function ask(contents) {
  const messages = contents.map(({ role, parts: [part] }) => ({
    role: role === 'model' ? 'assistant' : 'user',
    content: part.text,
  }));
  const response = await fetch(`${modelUrl}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'words', messages }),
  });
  const { choices } = await response.json();
  return [{ text: choices[0].message.content }];
}

app.post('/run', async ({ body: { appName, userId, sessionId, newMessage } }, response) => {
  const key = [appName, userId, sessionId];
  const invocationId = crypto.randomUUID();
  const texts = [];
  const append = async (author, content, more = {}) => {
    const id = crypto.randomUUID();
    const event = JSON.stringify({ id, invocationId, author, content, ...more });
    return query('append', [...key, id, invocationId, author, event]);
  };
  await append('user', newMessage);
  const contents = JSON.parse(await query('history', key)).map(({ content }) => content);
  for (;;) {
    const parts = isForHttp(contents) ? await ask(contents) : answerTo(contents);
    const content = { role: 'model', parts };
    texts.push(await append('harness_agent', content, { usageMetadata: USAGE }));
    const call = parts[0].functionCall;
    if (!call) break;
    const result = { role: 'user', parts: [{ functionResponse: { name: call.name, response: LOOKED_UP } }] };
    texts.push(await append('harness_agent', result));
    contents.push(content, result);
  }
  sendText(response, `[${texts.join(',')}]`);
});

app.listen(Number(port), '127.0.0.1');
