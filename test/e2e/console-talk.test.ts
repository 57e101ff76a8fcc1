import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/core/errors.ts';
import { tool } from '../support/agent-fixtures.ts';
import { hostAgent, hostScript } from '../support/agents.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { callPart } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';

/** The console's place to talk: words as they come, what is asked, what fails, and what is said otherwise. */

const browserPath = findBrowser();
const SESSIONS = '/apps/harness_agent/users/u1/sessions';

interface Talk {
  app: TestApp;
  browser: ConsolePage;
  page: Page;
}

async function openTalk(...how: Parameters<typeof startApp>): Promise<Talk> {
  const app = await startApp(...how);
  const browser = await openConsole(browserPath ?? '', app.url);
  return { app, browser, page: browser.page };
}
const closeTalk = async (talk: Talk | undefined) => {
  await talk?.browser.close();
  await talk?.app.close();
};
/** A way to a service that can be cut. */
async function openWay(to: string) {
  const sockets = new Set<Socket>();
  let isCut = false;
  const server = createServer((client) => {
    if (isCut) {
      client.destroy();
      return;
    }
    const service = connect(Number(new URL(to).port), '127.0.0.1');
    for (const [socket, other] of [
      [client, service],
      [service, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => other.destroy());
      socket.pipe(other);
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const setCut = (cut: boolean) => {
    isCut = cut;
    if (cut) for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    setCut,
    close: () => {
      setCut(true);
      server.close();
    },
  };
}

const field = (page: Page) => page.getByRole('textbox', { name: 'Message', exact: true });
const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const choose = (page: Page, what: string) => page.getByRole('radio', { name: what }).check();
const say = async (page: Page, words: string) => {
  await field(page).fill(words);
  await press(page, 'Send');
};
const lastSession = async ({ app, page }: Talk) => {
  const id = new URL(page.url()).pathname.split('/').at(-1) ?? '';
  return { id, events: (await app.get(`${SESSIONS}/${id}/events`)).body as { content?: { parts: object[] } }[] };
};

describe.skipIf(!browserPath)('an agent that speaks', () => {
  let talk: Talk;
  let model: SpokenModel;
  beforeEach(async () => {
    model = new SpokenModel();
    talk = await openTalk({}, { agents: hostAgent(model) });
  });
  afterEach(() => closeTalk(talk));

  test('a new session: words come as they are said, after a reload too, and a file goes with them', async () => {
    const { app, browser, page } = talk;
    await page.goto(`${app.url}/console/talk`);
    await field(page).waitFor();
    expect(await browser.look('talk-new')).toEqual([]);
    await page
      .getByLabel('Attach files')
      .setInputFiles([{ name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('Two cups.') }]);
    await page.getByText('note.txt').waitFor();
    await say(page, 'Make tea.');
    const call = await model.called(1);
    await call.say('The water ');
    await page.getByText('The water').waitFor();
    await page.getByText('The agent works.').waitFor();
    // The file is shown in the page.
    await page.getByText('Two cups.').waitFor();
    expect(await browser.look('talk')).toEqual([]);
    await page.reload();
    await page.getByText('The water').waitFor();
    await page.getByRole('button', { name: 'Stop', exact: true }).waitFor();
    await call.say('is hot.');
    await page.getByText('The water is hot.').waitFor();
    call.end();
    await page.getByText('The agent works.').waitFor({ state: 'detached' });
    const { events } = await lastSession(talk);
    const data = Buffer.from('Two cups.').toString('base64');
    const inlineData = { displayName: 'note.txt', mimeType: 'text/plain', data };
    expect(events.map(({ content }) => content?.parts)).toEqual([
      [{ text: 'Make tea.' }, { inlineData }],
      [{ text: 'The water is hot.' }],
    ]);
    expect(browser.problems).toEqual([]);
  });

  test('a turn is stopped, and goes on when it is tried again', async () => {
    const { app, page } = talk;
    await app.post(SESSIONS, { sessionId: 's1' });
    await page.goto(`${app.url}/console/sessions/harness_agent/u1/s1`);
    await page.getByRole('main').getByRole('link', { name: 'Talk', exact: true }).click();
    await say(page, 'Count to a million.');
    await (await model.called(1)).say('One, ');
    await press(page, 'Stop');
    await page.getByText('cancelled', { exact: true }).waitFor();
    await press(page, 'Try again');
    const again = await model.called(2);
    await again.say('Done.');
    again.end();
    await page.getByText('Done.').waitFor();
    await page.getByText('cancelled', { exact: true }).waitFor({ state: 'detached' });
    const questions = (await lastSession(talk)).events.filter(({ content }) =>
      JSON.stringify(content)?.includes('Count to a million.'),
    );
    expect(questions.length).toBe(1);
  });

  test('what waits for its turn is shown, also after a reload, and is in the field again when it is stopped', async () => {
    const { page } = talk;
    await page.goto(`${talk.app.url}/console/talk`);
    await say(page, 'Count to a million.');
    await (await model.called(1)).say('One, ');
    await page.getByText('The agent works.').waitFor();
    await field(page).fill('And then to two.');
    await choose(page, 'Queue');
    await press(page, 'Send');
    await page.getByText('waits for its turn', { exact: true }).waitFor();
    await page.reload();
    await page.locator('article', { hasText: 'waits for its turn' }).getByText('And then to two.').waitFor();
    expect(await field(page).inputValue()).toBe('');
    await press(page, 'Stop');
    await expect.poll(() => field(page).inputValue()).toBe('And then to two.');
    await page.getByText('waits for its turn', { exact: true }).waitFor({ state: 'detached' });
  });

  test('a message that was stopped elsewhere before it began is in the field again when it is tried again', async () => {
    const { app, page } = talk;
    await app.post(SESSIONS, { sessionId: 'stopped' });
    const path = `${SESSIONS}/stopped/invocations`;
    const start = async (text: string) =>
      (await app.post(path, { newMessage: { role: 'user', parts: [{ text }] } })).body as { id: string };
    await start('Count to a million.');
    const call = await model.called(1);
    const { id } = await start('And then to two.');
    await app.post(`${path}/${id}/cancel`, {});
    await call.say('Done.');
    call.end();
    await page.goto(`${app.url}/console/talk/harness_agent/u1/stopped`);
    await press(page, 'Try again');
    await page.getByText('its message is in the field again').waitFor();
    expect(await field(page).inputValue()).toBe('And then to two.');
    await press(page, 'Send');
    const next = await model.called(2);
    await next.say('One, two.');
    next.end();
    await page.getByText('One, two.').waitFor();
  });

  test('a connection that is lost is said, and what was spoken meanwhile is there when it is back', async () => {
    const { app, page } = talk;
    const way = await openWay(app.url);
    onTestFinished(way.close);
    await page.goto(`${way.url}/console/talk`);
    await say(page, 'Read to me.');
    const call = await model.called(1);
    await call.say('Once ');
    await page.getByText('Once').waitFor();
    way.setCut(true);
    await page.getByText('The connection is lost.').waitFor();
    await field(page).fill('And then?');
    await press(page, 'Send');
    await page.getByText('The service cannot be reached.').first().waitFor();
    expect(await field(page).inputValue()).toBe('And then?');
    await call.say('upon a time.');
    call.end();
    way.setCut(false);
    await page.getByText('Once upon a time.').waitFor();
    await page.getByText('The connection is lost.').waitFor({ state: 'detached' });
    await press(page, 'Send');
    const next = await model.called(2);
    await next.say('The end.');
    next.end();
    await page.getByText('The end.').waitFor();
    const asked = (await lastSession(talk)).events.filter(({ content }) =>
      JSON.stringify(content)?.includes('And then?'),
    );
    expect(asked.length).toBe(1);
  });
});

describe.skipIf(!browserPath)('a message while the agent works', () => {
  let talk: Talk;
  let model: SpokenModel;
  /** Ends the call of the tool. */
  let brewed: (result: object) => void;
  beforeEach(async () => {
    model = new SpokenModel();
    const brew = tool('brew', () => new Promise<object>((resolve) => (brewed = resolve)));
    talk = await openTalk({}, { agents: hostAgent(model, [brew]) });
    await talk.page.goto(`${talk.app.url}/console/talk`);
  });
  afterEach(() => closeTalk(talk));

  const article = (page: Page, text: string) => page.locator('article', { hasText: text });
  const list = async () => {
    const { id } = await lastSession(talk);
    return (await talk.app.get(`${SESSIONS}/${id}/invocations`)).body as {
      id: string;
      status: string;
      steeredInto?: string;
    }[];
  };

  test('steers it by default: it waits, then stands where it was taken, in the conversation and among the steps', async () => {
    const { browser, page } = talk;
    await say(page, 'Make tea.');
    (await model.called(1)).end([callPart('brew', { what: 'tea' }, 'b1')]);
    await page.getByText('The agent works.').waitFor();
    expect(await page.getByRole('radio', { name: 'Steer' }).isChecked()).toBe(true);
    await say(page, 'Make it green tea.');
    await article(page, 'Make it green tea.').getByText('waits for the next step of the agent').waitFor();
    expect(await browser.look('talk-steer-waits')).toEqual([]);
    await page.reload();
    await article(page, 'Make it green tea.').getByText('waits for the next step of the agent').waitFor();
    brewed({ kept: 'tea' });
    const next = await model.called(2);
    await next.say('It is green.');
    await article(page, 'Make it green tea.').getByRole('link', { name: 'steered what ran' }).waitFor();
    await page.getByText('waits for the next step of the agent').waitFor({ state: 'detached' });
    expect(await browser.look('talk-steered')).toEqual([]);
    next.end();
    await page.getByText('The agent works.').waitFor({ state: 'detached' });
    expect(await page.getByRole('radio').count()).toBe(0);
    const [message, taker] = await list();
    expect([message?.steeredInto, taker?.status]).toEqual([taker?.id, 'succeeded']);
    await page.getByRole('link', { name: 'steered what ran' }).click();
    const steps = page.getByRole('region', { name: 'Steps' });
    const names = steps.locator('.step-name bdi');
    await expect
      .poll(() => names.allInnerTexts())
      .toEqual(['harness_agent', 'spoken', 'brew', 'Message that steers', 'spoken']);
    expect(await page.getByRole('region', { name: 'Question' }).innerText()).not.toContain('green');
    await steps.getByText('Message that steers').click();
    await steps.getByText('Make it green tea.').waitFor();
    expect(await browser.look('invocation-steered')).toEqual([]);
    await page.getByRole('link', { name: 'The request that brought it' }).click();
    await page.getByRole('region', { name: 'Steered' }).waitFor();
    expect(await browser.look('invocation-that-steered')).toEqual([]);
    await page.getByRole('region', { name: 'Steered' }).getByRole('link').click();
    await page.getByRole('heading', { name: `Invocation ${taker?.id}` }).waitFor();
    await page.getByRole('link', { name: /^Session / }).click();
    await page
      .getByRole('region', { name: 'Invocations', exact: true })
      .getByRole('link', { name: taker?.id ?? '', exact: true })
      .waitFor();
    expect(await browser.look('invocations-steered')).toEqual([]);
  });

  test('that comes too late to steer begins the next turn, and says so', async () => {
    const { browser, page } = talk;
    await say(page, 'Make tea.');
    const call = await model.called(1);
    await call.say('Here ');
    await page.getByText('The agent works.').waitFor();
    await say(page, 'And a cup.');
    await article(page, 'And a cup.').getByText('waits for the next step').waitFor();
    call.end();
    const next = await model.called(2);
    await next.say('One cup.');
    await article(page, 'And a cup.').getByText('this began the next turn').waitFor();
    expect(await browser.look('talk-steer-late')).toEqual([]);
    next.end();
    await page.getByText('The agent works.').waitFor({ state: 'detached' });
    expect((await list()).map(({ steeredInto }) => steeredInto)).toEqual([undefined, undefined]);
  });

  test('waits for its turn, or takes the place of what runs', async () => {
    const { page } = talk;
    await say(page, 'Make tea.');
    (await model.called(1)).end([callPart('brew', {}, 'b1')]);
    await page.getByText('The agent works.').waitFor();
    await field(page).fill('Then coffee.');
    await choose(page, 'Queue');
    await press(page, 'Send');
    await page.getByText('waits for its turn', { exact: true }).waitFor();
    expect(await page.getByRole('radio', { name: 'Steer' }).isChecked()).toBe(true);
    brewed({});
    const call = await model.called(2);
    await call.say('Tea.');
    expect(await article(page, 'Then coffee.').innerText()).toContain('waits for its turn');
    call.end();
    const coffee = await model.called(3);
    await coffee.say('Coffee ');
    await field(page).fill('Stop: water.');
    await choose(page, 'Interrupt');
    await press(page, 'Send');
    const water = await model.called(4);
    await water.say('Water.');
    water.end();
    // Between the two turns nothing works for a moment.
    await expect
      .poll(async () => (await list()).map(({ status }) => status))
      .toEqual(['succeeded', 'interrupted', 'succeeded']);
  });

  test.each([900, 500])(
    'is sent though the page grows while Send is pressed, in a window of height %d',
    async (height) => {
      const { app, page } = talk;
      await page.setViewportSize({ width: 1280, height });
      await app.post(SESSIONS, { sessionId: 's1' });
      await page.goto(`${app.url}/console/talk/harness_agent/u1/s1`);
      await field(page).fill('And a cup.');
      const send = page.getByRole('button', { name: 'Send', exact: true });
      await send.hover();
      await page.mouse.down();
      await app.post(`${SESSIONS}/s1/invocations`, { newMessage: { role: 'user', parts: [{ text: 'Make tea.' }] } });
      await (await model.called(1)).say('Here ');
      await article(page, 'Make tea.').waitFor();
      await page.getByRole('radio', { name: 'Steer' }).waitFor();
      await page.mouse.up();
      await article(page, 'And a cup.').getByText('waits for the next step').waitFor();
      await expect.poll(() => field(page).inputValue()).toBe('');
    },
  );

  test('that steers is in the field again when all is stopped before it was taken', async () => {
    const { page } = talk;
    await say(page, 'Make tea.');
    (await model.called(1)).end([callPart('brew', {}, 'b1')]);
    await page.getByText('The agent works.').waitFor();
    await say(page, 'With milk.');
    await page.getByText('waits for the next step').waitFor();
    await press(page, 'Stop');
    await expect.poll(() => field(page).inputValue()).toBe('With milk.');
    await page.getByText('waits for the next step').waitFor({ state: 'detached' });
    brewed({});
  });
});

describe.skipIf(!browserPath)('an agent that asks', () => {
  let talk: Talk;
  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), 'talk-'));
    const file = join(folder, 'harness.yaml');
    writeFileSync(
      file,
      'model: { provider: offline }\ntools: [write_state, ask_person, get_user_choice, save_artifact]\n' +
        'confirm_tools: [write_state]\n',
    );
    talk = await openTalk({ HARNESS_FILE: file, MAX_BODY_BYTES: '4000' });
    rmSync(folder, { recursive: true });
  });
  afterAll(() => closeTalk(talk));

  test('a call is allowed, a form is filled in, one of some options is chosen, a file is opened', async () => {
    const { app, browser, page } = talk;
    await page.goto(`${app.url}/console/talk`);
    await say(page, 'write_state {"key":"tea","value":"green"}');
    await page.getByRole('region', { name: 'The agent asks' }).getByText('Do you allow it?').waitFor();
    expect(await browser.look('talk-asked')).toEqual([]);
    await press(page, 'Allow');
    await page.getByText('answered: {"kept":"tea"}').waitFor();
    const schema = { type: 'object', properties: { cups: { type: 'integer', minimum: 1 } }, required: ['cups'] };
    await say(page, `Use ask_person ${JSON.stringify({ question: 'How many?', schema })}`);
    await page.getByLabel('cups (required)').fill('3');
    await press(page, 'Answer');
    await page.getByText('answered: {"cups":3}').waitFor();
    await say(page, 'Use ask_person {"question":"Which city?"}');
    await page.getByLabel('Answer (required)').fill('Rome');
    await press(page, 'Answer');
    await page.getByText('answered: Rome').waitFor();
    await say(page, 'get_user_choice {"options":["red","blue"]}');
    await page.getByLabel('Answer (required)').selectOption('blue');
    await press(page, 'Answer');
    await page.getByText('answered: blue').waitFor();
    await say(page, 'save_artifact {"name":"plan.md","text":"Tea first."}');
    await page.getByText('Saved plan.md, version 0').click();
    await page.locator('details', { hasText: 'Saved plan.md' }).locator('pre', { hasText: 'Tea first.' }).waitFor();
    expect(browser.problems).toEqual([]);
  });

  test('what waits for a person looks so in the conversation, with a way to answer it, and not like an error', async () => {
    const { app, browser, page } = talk;
    await page.goto(`${app.url}/console/talk`);
    await say(page, 'write_state {"key":"cup","value":"big"}');
    const waits = page.getByRole('region', { name: 'Waits', exact: true });
    await waits.getByText('Do you allow it?').waitFor();
    const log = page.getByRole('log');
    expect(await log.innerText()).not.toContain('requires confirmation');
    expect(await log.locator('.bad').count()).toBe(0);
    await page.getByRole('button', { name: 'Allow', exact: true }).waitFor();
    // The newest is seen, also when the window or the form takes a part of the height.
    const toEnd = () => log.evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
    expect(await browser.look('talk-waits')).toEqual([]);
    await expect.poll(toEnd).toBeLessThan(2);
    await waits.getByRole('link', { name: 'Answer it' }).click();
    await page.getByRole('region', { name: 'Decide' }).waitFor();
    await press(page, 'Allow');
    await page.goBack();
    await page.getByText('answered: {"kept":"cup"}').waitFor();
    await waits.waitFor({ state: 'detached' });
  });

  test('a question without anything to fill in is confirmed or declined', async () => {
    const { app, page } = talk;
    const schema = { type: 'object', properties: {} };
    await page.goto(`${app.url}/console/talk`);
    await say(page, `Use ask_person ${JSON.stringify({ question: 'Shall I go on?', schema })}`);
    await page.getByRole('button', { name: 'Decline', exact: true }).waitFor();
    expect(await page.getByLabel('Answer, as JSON').count()).toBe(0);
    await press(page, 'Confirm');
    await page.getByText('answered: {}').waitFor();
  });

  test('files that are attached are still there after a reload, and are sent once', async () => {
    const { app, page } = talk;
    await page.goto(`${app.url}/console/talk`);
    await page
      .getByLabel('Attach files')
      .setInputFiles([{ name: 'list.txt', mimeType: 'text/plain', buffer: Buffer.from('Milk.') }]);
    await page.getByText('list.txt').waitFor();
    await field(page).fill('Buy this.');
    await page.reload();
    await page.getByText('list.txt').waitFor();
    expect(await field(page).inputValue()).toBe('Buy this.');
    await press(page, 'Send');
    await page.getByText('You wrote: "Buy this."').waitFor();
    expect(await page.getByRole('list', { name: 'Attached files' }).count()).toBe(0);
    const { events } = await lastSession(talk);
    expect(JSON.stringify(events[0])).toContain('list.txt');
    await page.goto(`${app.url}/console/talk`);
    await field(page).waitFor();
    expect(await page.getByText('list.txt').count()).toBe(0);
  });

  test('a question is asked otherwise in a copy of the session', async () => {
    const { app, browser, page } = talk;
    await page.goto(`${app.url}/console/talk`);
    await say(page, 'First words');
    await page.getByText('You wrote: "First words"').waitFor();
    await say(page, 'Second words');
    await page.getByText('You wrote: "Second words"').waitFor();
    const before = await lastSession(talk);
    await field(page).fill('A draft');
    await page.getByRole('button', { name: 'Edit', exact: true }).last().click();
    expect(await field(page).inputValue()).toBe('Second words');
    await field(page).fill('Other words');
    await press(page, 'Ask again');
    await page.getByText('You wrote: "Other words"').waitFor();
    const after = await lastSession(talk);
    expect(after.id).not.toBe(before.id);
    expect(JSON.stringify(after.events)).not.toContain('Second words');
    expect(after.events.length).toBe(4);
    const read = (await app.get(`${SESSIONS}/${after.id}?withDetails=true`)).body;
    expect(read).toMatchObject({ forkedFrom: { sessionId: before.id, atSequence: 2 } });
    // What was being written there is still there.
    await page.goBack();
    await expect.poll(() => field(page).inputValue()).toBe('A draft');
    expect(browser.problems).toEqual([]);
  });

  test('what the service refuses is not lost, by a reload neither', async () => {
    const { app, page } = talk;
    const long = 'x'.repeat(5_000);
    await app.post(SESSIONS, { sessionId: 'refused' });
    await page.goto(`${app.url}/console/talk/harness_agent/u1/refused`);
    await say(page, long);
    await page.getByText('(413)').waitFor();
    expect(await field(page).inputValue()).toBe(long);
    await page.reload();
    expect(await field(page).inputValue()).toBe(long);
    await say(page, 'Short.');
    await page.getByText('You wrote: "Short."').waitFor();
    expect(await field(page).inputValue()).toBe('');
  });
});

test.skipIf(!browserPath)('a turn that fails says why, and is tried again without being asked again', async () => {
  const script = [new AgentError('model_unavailable', 'The model is away.'), [{ text: 'Back again.' }]];
  const talk = await openTalk({}, { agents: hostScript(script) });
  const { app, browser, page } = talk;
  try {
    await page.goto(`${app.url}/console/talk`);
    await say(page, 'Are you there?');
    await page.getByText('failed', { exact: true }).waitFor();
    expect(await browser.look('talk-failed')).toEqual([]);
    await press(page, 'Try again');
    await page.getByText('Back again.').waitFor();
    const { events } = await lastSession(talk);
    expect(events.filter(({ content }) => JSON.stringify(content)?.includes('Are you there?')).length).toBe(1);
  } finally {
    await closeTalk(talk);
  }
});

test.skipIf(!browserPath)('without the scope “invoke” there is a sentence and no field', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'talk-'));
  const file = join(folder, 'keys');
  const reader = createKey({ id: 'reader', scopes: ['read'], users: ['u1'] });
  writeFileSync(file, `${reader.entry}\n`);
  const talk = await openTalk({ RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false', CONSOLE: 'true' });
  const { app, browser, page } = talk;
  try {
    await page.goto(`${app.url}/console/talk?app=harness_agent&user=u1`);
    await page.getByLabel('Key').fill(reader.key);
    await press(page, 'Log in');
    await page.getByText('Talking needs the scope “invoke”').waitFor();
    expect(await page.locator('textarea').count()).toBe(0);
    const caller = await app.get('/caller', { authorization: `Bearer ${reader.key}` });
    expect(caller.body).toEqual({ kind: 'key', id: 'reader', scopes: ['read'], users: ['u1'] });
    expect(await browser.look('talk-refused')).toEqual(browser.problems);
  } finally {
    await closeTalk(talk);
    rmSync(folder, { recursive: true });
  }
});
