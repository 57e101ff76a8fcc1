import OpenAI, { APIError } from 'openai';
import { afterAll, expect, test } from 'vitest';
import { APP, modelSettings, stage } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { startSpeaker } from './support/speaker.ts';

/** A response in the background, read with the official package while the process that answers is killed. */

const WORDS = 150;
const WORD_MS = 20;
const here = stage();
const speaker = await startSpeaker(WORDS, WORD_MS);
const servers: ServerProcess[] = [];
const start = async () => {
  const settings = { DOORS: 'openai', TOOLS: '', SESSION_LEASE_MS: String(paced(3_000)) };
  const server = await startServer(here.servingUrl, { ...modelSettings(speaker.baseUrl), ...settings });
  servers.push(server);
  return { server, client: new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 }) };
};
afterAll(async () => {
  await Promise.all(servers.map((server) => server.kill()));
  speaker.close();
});

test('it ends on another one; a stream that had text of the first try says so, and is read again', async () => {
  const [first, second] = [await start(), await start()];
  let [id, last, text, takenBack] = ['', -1, '', 0];
  let end: OpenAI.Responses.Response | undefined;
  let killed: Promise<void> | undefined;
  const follow = async (events: AsyncIterable<OpenAI.Responses.ResponseStreamEvent>) => {
    for await (const event of events) {
      expect(event.sequence_number).toBeGreaterThan(last);
      last = event.sequence_number;
      if (event.type === 'response.created') id = event.response.id;
      if (event.type === 'response.output_text.delta') text += event.delta;
      if (event.type === 'response.completed') end = event.response;
      if (text.includes('1-20 ')) killed ??= first.server.kill();
    }
  };
  const begun = await first.client.responses.create({ model: APP, input: 'Speak.', background: true, stream: true });
  await expect(follow(begun)).rejects.toThrow(/terminated|aborted|Premature close|fetch failed/);
  await killed;
  while (!end) {
    const rest = await second.client.responses.retrieve(id, { stream: true, starting_after: last });
    await follow(rest).catch((error: unknown) => {
      if (!(error instanceof APIError) || !error.message.includes('from its first event')) throw error;
      takenBack += 1;
      [last, text] = [-1, ''];
    });
  }
  expect(takenBack).toBe(1);
  expect(speaker.requests()).toBe(2);
  expect(text).toBe(Array.from({ length: WORDS }, (_, word) => `2-${word} `).join(''));
  expect(end.output_text ?? (await second.client.responses.retrieve(id)).output_text).toBe(text);
});
