import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { sendChat } from './chat-wire.ts';
import { expectNoneRefused } from './fake-provider.ts';
import { findRefusal, type Refusal, toRefusalAnswer } from './provider-checks.ts';

/** A model of the kind `openai-compatible` that says `At last.`, but not before it is let. */
interface HeldProvider {
  baseUrl: string;
  /** Resolves when the first request has come. */
  requested: Promise<void>;
  /** Answers every request, those to come too. */
  release(): void;
  close(): Promise<void>;
}

/** Starts it on loopback. The caller closes it. */
export async function startHeldProvider(): Promise<HeldProvider> {
  const requested = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const chunk = (delta: object, reason: string | null) => ({
    id: 'c1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'held',
    choices: [{ index: 0, delta, finish_reason: reason }],
  });
  const chunks = [chunk({ role: 'assistant', content: 'At last.' }, null), chunk({}, 'stop')];
  const refused: Refusal[] = [];
  const answerOne = async (request: IncomingMessage, response: ServerResponse) => {
    const asked = await text(request);
    const refusal = findRefusal('openai-compatible', asked);
    requested.resolve();
    if (refusal) {
      refused.push(refusal);
      const { status, contentType, body } = toRefusalAnswer('openai-compatible', refusal);
      response.writeHead(status, { 'content-type': contentType }).end(body);
      return;
    }
    void released.promise.then(() => sendChat(response, JSON.parse(asked) as object, chunks));
  };
  const server = createServer((request, response) => void answerOne(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    requested: requested.promise,
    release: () => released.resolve(),
    close: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      expectNoneRefused(refused);
    },
  };
}
