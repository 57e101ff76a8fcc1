import type { ServerResponse } from 'node:http';

/** A chunk of a stream of OpenAI's chat completions. */
interface Chunk {
  id: string;
  model: string;
  choices: { delta: object; finish_reason: string | null }[];
  usage?: object;
}

/** Sends chunks as a stream; if the request did not ask for one, as the whole answer that they make up. */
export function sendChat(response: ServerResponse, asked: { stream?: unknown }, chunks: Chunk[], headers = {}): void {
  if (asked.stream === true) {
    response.writeHead(200, { 'content-type': 'text/event-stream', ...headers });
    for (const chunk of chunks) response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    response.end('data: [DONE]\n\n');
    return;
  }
  response.writeHead(200, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(toCompletion(chunks)));
}

function toCompletion(chunks: Chunk[]): object {
  const choices = chunks.flatMap(({ choices: [choice] }) => choice ?? []);
  const deltas = choices.map(({ delta }) => delta as { content?: string; tool_calls?: Record<string, unknown>[] });
  const texts = deltas.flatMap(({ content }) => content ?? []);
  const calls = deltas.flatMap(({ tool_calls: pieces = [] }) => pieces.map((each) => ({ ...each, index: undefined })));
  const message = {
    role: 'assistant',
    content: texts.length > 0 ? texts.join('') : null,
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  const reason = choices.findLast(({ finish_reason: each }) => each !== null)?.finish_reason ?? null;
  const usage = chunks.findLast((chunk) => chunk.usage)?.usage;
  return {
    ...chunks[0],
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: reason }],
    ...(usage && { usage }),
  };
}
