import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { sendChat } from '../../support/chat-wire.ts';

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
    const name = ++requests;
    const chunk = (delta: object, reason: string | null) => {
      const choices = [{ index: 0, delta, finish_reason: reason }];
      return { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'speaker', choices };
    };
    void (async () => {
      const asked = (await json(request)) as { stream?: boolean };
      const said = Array.from({ length: words }, (_, n) =>
        chunk({ role: 'assistant', content: `${name}-${n} ` }, null),
      );
      if (asked.stream !== true) {
        await sleep(words * wordMs);
        return sendChat(response, asked, [...said, chunk({}, 'stop')]);
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const each of said) {
        if (response.destroyed) break;
        response.write(`data: ${JSON.stringify(each)}\n\n`);
        await sleep(wordMs);
      }
      response.end(`data: ${JSON.stringify(chunk({}, 'stop'))}\n\ndata: [DONE]\n\n`);
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
