import { test } from 'vitest';
import { startApp } from '../support/app.ts';
import { startHeldProvider } from '../support/held-provider.ts';

/** Proxies cut a connection on which nothing comes for 60 s; a model or a tool may think for longer. */
test.concurrent.for<[string, object, Record<string, string>]>([
  [
    '/run_sse',
    { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage: { role: 'user', parts: [{ text: 'x' }] } },
    {},
  ],
  ['/invoke', { prompt: 'x' }, { user_id: 'u', session_id: 's' }],
])(
  '%s sends a comment each 15 s while the model is silent, and then the answer',
  async ([path, body, headers], { expect, onTestFinished }) => {
    const provider = await startHeldProvider();
    const settings = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'held', MODEL_BASE_URL: provider.baseUrl };
    const app = await startApp(settings);
    onTestFinished(async () => {
      await app.close();
      await provider.close();
    });
    await app.post('/apps/harness_agent/users/u/sessions', { sessionId: 's' });
    const response = await fetch(`${app.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const reader = (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const readUntil = async (part: string) => {
      while (!text.includes(part)) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
      }
    };
    await readUntil(': ping\n\n');
    expect(text).not.toContain('At last.');
    provider.release();
    await readUntil('At last.');
    expect(text).toContain('At last.');
    await reader.cancel();
  },
);
