import { beforeAll, expect, test } from 'vitest';
import type { ModelRequest } from '../../src/agent/definition/model.ts';
import { getAnswerText } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { newClient } from '../support/ag-ui.ts';
import { hostAgent } from '../support/agents.ts';
import { newChat, type Sdk, type UiMessage } from '../support/ai-sdk.ts';
import { startApp, startOn } from '../support/app.ts';
import { loadFrontEnd } from '../support/front-ends.ts';
import { scriptedModel } from '../support/scripted-model.ts';
import { readFrames } from '../support/text-reader.ts';
import { staged } from '../support/staged.ts';
import { MINUTE } from '../support/patience.ts';

/** One session in four front ends, one after another and all at once: each view shows what is stored. */

/** Rounds of a session: each front end in turn, then all at once; with FAULT_LONG=1 sessions follow for a minute. */
const ROUNDS = 3;
const MS = process.env['FAULT_LONG'] === '1' ? 60_000 : 0;

const model = scriptedModel([
  ({ contents }: ModelRequest) => [
    { text: `You said ${getAnswerText(contents.at(-1))}, and I answer that at some length.` },
  ],
]);
const agents = hostAgent(model);
let sdk: Sdk;
beforeAll(async () => {
  sdk = (await loadFrontEnd('ai')) as Sdk;
});
const app = staged(() => startApp({}, { agents }));
const other = staged(() => startOn(app.databaseUrl, {}, { agents }));

const SESSIONS = '/apps/harness_agent/users/user/sessions';
const toLine = (author: string, text: string) => `${author === 'user' ? 'user' : 'agent'}: ${text}`;
const listChat = (messages: UiMessage[]) =>
  messages.map(({ role, parts }) =>
    toLine(role, parts.map(({ text }) => (typeof text === 'string' ? text : '')).join('')),
  );

/** What each front end says and shows in a session: its lines, the last two of them its own turn. */
const FRONT_ENDS: Record<string, (url: string, sessionId: string, text: string) => Promise<string[]>> = {
  // The development UI reads the session, then posts the prompt.
  'ADK Web': async (url, sessionId, text) => {
    const newMessage = { role: 'user', parts: [{ text }] };
    const body = { appName: 'harness_agent', userId: 'user', sessionId, newMessage, streaming: true };
    const headers = { 'content-type': 'application/json' };
    await fetch(`${url}${SESSIONS}/${sessionId}`);
    const response = await fetch(`${url}/run_sse`, { method: 'POST', headers, body: JSON.stringify(body) });
    const events: Event[] = [];
    for await (const frame of readFrames(response)) events.push(JSON.parse(frame.slice('data: '.length)) as Event);
    const whole = events.filter(({ partial }) => partial !== true);
    const pieces = events.filter(({ partial }) => partial === true).map(({ content }) => getAnswerText(content));
    const said = whole.map(({ content }) => getAnswerText(content)).join('');
    expect(['', said]).toContain(pieces.join(''));
    return [toLine('user', text), toLine('agent', said)];
  },
  '/run_sse with ids': async (url, sessionId, text) => {
    const body = { appName: 'harness_agent', userId: 'user', sessionId, streaming: true };
    const response = await fetch(`${url}/run_sse?eventIds=true`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': `${sessionId} ${text}` },
      body: JSON.stringify({ ...body, newMessage: { role: 'user', parts: [{ text }] } }),
    });
    const events: Event[] = [];
    for await (const frame of readFrames(response))
      events.push(JSON.parse(frame.slice(frame.indexOf('data: ') + 'data: '.length)) as Event);
    return [toLine('user', text), toLine('agent', getAnswerText(events.at(-1)?.content))];
  },
  'AG-UI': async (url, sessionId, text) => {
    const client = newClient(`${url}/ag-ui/harness_agent`, sessionId);
    await client.say(text);
    return client.messages.map(({ role, content }) => toLine(role, String(content)));
  },
  'AI SDK': async (url, sessionId, text) => {
    const api = `${url}/ai-sdk/harness_agent/chat`;
    const before = await fetch(`${api}/${sessionId}/messages`);
    const chat = newChat(sdk, api, sessionId, { messages: before.ok ? ((await before.json()) as UiMessage[]) : [] });
    await chat.sendMessage({ text });
    expect(chat.status).toBe('ready');
    return listChat(chat.messages);
  },
};

/** Uses a session from all of them, on both replicas. @returns how many turns it had */
async function compareViews(sessionId: string): Promise<number> {
  await app.post(SESSIONS, { sessionId });
  const views: { name: string; text: string; shown: string[] }[] = [];
  const take = async (name: string, round: string, at: string) => {
    const text = `${name} ${round}`;
    views.push({ name, text, shown: (await FRONT_ENDS[name]?.(at, sessionId, text)) ?? [] });
  };
  const names = Object.keys(FRONT_ENDS);
  for (let round = 0; round < ROUNDS; round += 1) {
    const [first, second] = round % 2 === 0 ? [app.url, other.url] : [other.url, app.url];
    for (const name of names) await take(name, `in turn ${round}`, first);
    await Promise.all(names.map((name, place) => take(name, `at once ${round}`, place % 2 === 0 ? first : second)));
  }
  const { events } = (await app.get(`${SESSIONS}/${sessionId}`)).body as { events: Event[] };
  const lines = events.map(({ author, content }) => toLine(author ?? '', getAnswerText(content)));
  expect(lines).toHaveLength(views.length * 2);
  for (const { name, text, shown } of views) {
    const place = lines.indexOf(toLine('user', text));
    expect(lines[place + 1]).toBe(toLine('agent', `You said ${text}, and I answer that at some length.`));
    const own = lines.slice(place, place + 2);
    expect([text, shown.slice(-2)]).toEqual([text, own]);
    // What a view shows before that: AG-UI's all that was said, that of the AI SDK what it was opened with.
    if (name === 'AG-UI') expect([text, shown]).toEqual([text, lines.slice(0, place + 2)]);
    if (name === 'AI SDK') expect([text, shown]).toEqual([text, [...lines.slice(0, shown.length - 2), ...own]]);
  }
  for (const at of [app.url, other.url]) {
    const client = newClient(`${at}/ag-ui/harness_agent`, sessionId);
    await client.connectAgent();
    expect(client.messages.map(({ role, content }) => toLine(role, String(content)))).toEqual(lines);
    const found = await fetch(`${at}/ai-sdk/harness_agent/chat/${sessionId}/messages`);
    expect(listChat((await found.json()) as UiMessage[])).toEqual(lines);
  }
  return views.length;
}

test('all views of a session equal its events', { timeout: 5 * MINUTE }, async () => {
  const end = performance.now() + MS;
  let turns = 0;
  for (let n = 0; n === 0 || performance.now() < end; n += 1) turns += await compareViews(`s-${n}`);
  expect(turns).toBeGreaterThan(ROUNDS);
  console.log(`${turns} turns in four front ends, each view equal to the events`);
});
