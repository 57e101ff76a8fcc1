import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A model that speaks for some time, each time in other words, so that two tries cannot be taken for one. */
export interface Speaker {
  baseUrl: string;
  /** How often it was asked: the first part of each of its words. */
  requests(): number;
  close(): void;
}

/** Starts a model that says so many words, one each `wordMs`. */
export async function startSpeaker(words: number, wordMs: number): Promise<Speaker> {
  let requests = 0;
  const server = createServer((request, response) => {
    request.resume();
    const name = ++requests;
    const chunk = (delta: object, reason: string | null) => {
      const choices = [{ index: 0, delta, finish_reason: reason }];
      const said = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'speaker', choices };
      return `data: ${JSON.stringify(said)}\n\n`;
    };
    void (async () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (let word = 0; word < words && !response.destroyed; word++) {
        response.write(chunk({ role: 'assistant', content: `${name}-${word} ` }, null));
        await sleep(wordMs);
      }
      response.end(`${chunk({}, 'stop')}data: [DONE]\n\n`);
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests: () => requests,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
