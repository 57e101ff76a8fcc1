import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { type BrowserPage, findBrowser, openBrowser } from '../support/browser.ts';
import { type LiveServer, startLiveServer } from '../support/live-server.ts';

/** The call button of the prebuilt ADK Web UI with a model that has a live API. The steps build on each other. */

const browserPath = findBrowser();
const SAID = 'Good morning, I hear you.';

describe.skipIf(!browserPath)('a call in the ADK Web UI', () => {
  let server: LiveServer;
  let app: TestApp;
  let browser: BrowserPage;
  let page: Page;
  let sessionId = '';

  beforeAll(async () => {
    // The model answers the first sound of each call.
    const answered = new Set<object>();
    server = await startLiveServer((message, side) => {
      if (!message.realtimeInput?.audio || answered.has(side)) return;
      answered.add(side);
      side.send({ serverContent: { inputTranscription: { text: 'Good ' } } });
      side.send({ serverContent: { inputTranscription: { text: 'morning!' } } });
      const inlineData = { mimeType: 'audio/pcm;rate=24000', data: Buffer.alloc(4_800).toString('base64') };
      side.send({ serverContent: { modelTurn: { parts: [{ inlineData }] } } });
      side.send({ serverContent: { outputTranscription: { text: SAID } } });
      side.send({ serverContent: { generationComplete: true } });
      side.send({ serverContent: { turnComplete: true } });
    }, 'I read what you type.');
    app = await startApp({
      MODEL_PROVIDER: 'google',
      MODEL_NAME: 'gemini',
      MODEL_API_KEY: 'a key',
      MODEL_BASE_URL: `${server.baseUrl}/v1beta`,
      MODEL_LIVE_NAME: 'gemini-live',
    });
    browser = await openBrowser(browserPath ?? '', app.url);
    page = browser.page;
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
    await server?.close();
  });

  const callButton = () => page.locator('.audio-rec-btn').first();
  const look = async (name: string) => {
    await browser.screenshot(`call-${name}`);
    return browser.problems;
  };
  const stored = async () =>
    ((await app.get(`/apps/harness_agent/users/user/sessions/${sessionId}`)).body as { events: Event[] }).events;

  test('shows what the user says and what the model answers', async () => {
    await page.goto(`${app.url}/dev-ui/?app=harness_agent&userId=user`);
    const opened = page.waitForEvent('websocket');
    await page.getByPlaceholder('Type a message').waitFor();
    await callButton().click();
    const socket = await opened;
    expect(socket.url()).toContain('/run_live?app_name=harness_agent');
    sessionId = new URL(socket.url()).searchParams.get('session_id') ?? '';
    await page.getByText(SAID).first().waitFor();
    await page.getByText('Good morning!').first().waitFor();
    expect(await look('answered')).toEqual([]);
  });

  test('takes what is typed while it is open', async () => {
    await page.getByPlaceholder('Type a message').fill('Do you read this?');
    await page.keyboard.press('Enter');
    await page.getByText('I read what you type.').first().waitFor();
    expect(await look('typed')).toEqual([]);
  });

  test('ends, and its session shows the conversation', async () => {
    await callButton().click();
    await page.reload();
    await page.getByText(SAID).first().waitFor();
    expect(await look('ended')).toEqual([]);
    expect(
      (await stored()).map(({ inputTranscription, outputTranscription, content, turnComplete }) =>
        turnComplete ? 'end' : (inputTranscription ?? outputTranscription ?? content?.parts?.[0])?.text,
      ),
    ).toEqual(['Good morning!', SAID, 'end', 'Do you read this?', 'I read what you type.']);
    await expect.poll(() => server.open()).toBe(0);
  });
});
