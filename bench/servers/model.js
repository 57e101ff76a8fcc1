import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';

/**
 * A model over HTTP that speaks chat completions: it says at once as many words as the last message asks for, as a
 * stream of a word a chunk or whole, as the request wants it. `node servers/model.js <port>`
 */

const [port] = process.argv.slice(2);
const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const HEAD = { id: 'c', created: 1, model: 'words' };

const toChunk = (choices, more = {}) =>
  `data: ${JSON.stringify({ ...HEAD, object: 'chat.completion.chunk', choices, ...more })}\n\n`;

/** The bodies by number of words, made once, so that the model costs the machine little. */
const made = new Map();

function make(count) {
  const words = Array.from({ length: count }, (_, n) => `word-${n} `);
  const chunks = words.map((content) =>
    toChunk([{ index: 0, delta: { role: 'assistant', content }, finish_reason: null }]),
  );
  const end = [toChunk([{ index: 0, delta: {}, finish_reason: 'stop' }]), toChunk([], { usage: USAGE })];
  const message = { role: 'assistant', content: words.join('') };
  const whole = {
    ...HEAD,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: 'stop' }],
    usage: USAGE,
  };
  return { chunks: [...chunks, ...end, 'data: [DONE]\n\n'], whole: JSON.stringify(whole) };
}

async function answer(request, response) {
  if (request.method === 'GET') return response.end('{"status":"ok"}');
  const { messages, stream } = await json(request);
  const [, count] = /(\d+) words/.exec(JSON.stringify(messages.at(-1).content));
  const { chunks, whole } = made.get(count) ?? made.set(count, make(Number(count))).get(count);
  response.writeHead(200, { 'content-type': stream ? 'text/event-stream' : 'application/json' });
  if (!stream) return response.end(whole);
  for (const chunk of chunks) response.write(chunk);
  return response.end();
}

createServer((request, response) => void answer(request, response)).listen(Number(port), '127.0.0.1');
