import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { stringify } from 'yaml';
import { getAnswerText, getFunctionCalls, getFunctionResponses } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import {
  type AnsweringProvider,
  type Asked,
  type Reply,
  startAnsweringProvider,
} from '../support/answering-provider.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';

/** The agent as a team deploys it: a harness file, a model provider, MCP servers; all real, on loopback. */

let directory = '';
let provider: AnsweringProvider;
let mcp: FakeMcp;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'harness-'));
  provider = await startAnsweringProvider((asked) => reply(asked));
  mcp = await startMcpServer([{ name: 'shout', call: ({ text }) => says(String(text).toUpperCase()) }]);
});
afterAll(async () => {
  await mcp.close();
  await provider.close();
  await rm(directory, { recursive: true });
});

const says = (text: string) => ({ content: [{ type: 'text' as const, text }] });

/**
 * What the model does: hands over, calls the tool that a prompt `use <tool> <arguments>` names, then tells its results.
 */
function reply(asked: Asked): Reply {
  const { system, prompt, results, model } = asked;
  const [name = ''] = /^You are (\w+)/.exec(system)?.slice(1) ?? [];
  const known = ROLES[name]?.(asked);
  if (known !== undefined) return known;
  const [tool, args] = /^use (\w+) (\{.*\})$/s.exec(prompt)?.slice(1) ?? [];
  if (prompt === 'for ever') return { calls: [['calculator', { expression: '1 + 1' }]] };
  if (tool && args && results.length === 0) return { calls: [[tool, JSON.parse(args) as object]] };
  return `${name} (${model}) has ${asked.tools.join(' ')}: ${results.join(', ') || prompt}`;
}

/** Roles of the agents below that do more than that. */
const ROLES: Record<string, (asked: Asked) => Reply | undefined> = {
  desk: ({ prompt }) => (prompt === 'a poem' ? { calls: [['transfer_to_agent', { agent_name: 'poet' }]] } : undefined),
  poet: () => 'Roses are red.',
  writer: () => 'A draft.',
  left: ({ results }) => (results.length > 0 ? 'Left is content.' : { calls: [['calculator', { expression: '1' }]] }),
  right: () => 'Right is content.',
  editor: ({ messages }) =>
    messages.some(({ content }) => content === 'Once more.') ? { calls: [['exit_loop', {}]] } : 'Once more.',
  closer: () => 'The end.',
};

/** Starts the service with this harness file on the provider. */
async function startHarness(file: object, environment: Record<string, string> = {}): Promise<TestApp> {
  const path = join(directory, `${crypto.randomUUID()}.yaml`);
  const model = { provider: 'openai-compatible', name: 'small', base_url: provider.baseUrl };
  await writeFile(path, stringify({ model, ...file }));
  return startApp({ HARNESS_FILE: path, DEV_UI: 'false', ...environment });
}

const user = '/apps/harness_agent/users/u/sessions';

async function invoke(app: TestApp, sessionId: string, prompt: string, harness?: object) {
  const { status, body } = await app.post('/harness/invoke', {
    prompt,
    harness_name: 'demo',
    run_agent_request: { user_id: 'u', session_id: sessionId },
    ...(harness ? { harness } : {}),
  });
  return [status, body] as const;
}
const answered = (output: string, overwrite = false) =>
  [200, { harness_name: 'demo', overwrite, output, error: null }] as const;
const failed = (error: string, overwrite = false) =>
  [200, { harness_name: 'demo', overwrite, output: '', error }] as const;

const stored = async (app: TestApp, sessionId: string) =>
  ((await app.get(`${user}/${sessionId}`)).body as { events: Event[] }).events;
const run = async (app: TestApp, sessionId: string, request: object) => {
  const { status, body } = await app.post('/run', { appName: 'harness_agent', userId: 'u', sessionId, ...request });
  expect(status).toBe(200);
  return body as Event[];
};
const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const statuses = async (app: TestApp, sessionId: string) =>
  ((await app.get(`${user}/${sessionId}/invocations`)).body as { status: string }[]).map(({ status }) => status);

/** Sockets of this process, idle ones too; the service, the provider and the MCP servers are all in it. */
function openSockets(): number {
  // Elsewhere than on Linux only those that are in use can be counted.
  if (!existsSync(FILES)) return process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  return readdirSync(FILES).filter((fd) => {
    try {
      return readlinkSync(`${FILES}/${fd}`).startsWith('socket:');
    } catch {
      return false;
    }
  }).length;
}
const FILES = '/proc/self/fd';

const TOOLS = 'calculator load_skill load_skill_resource shout transfer_to_agent write_state';

describe('a deployed agent with tools, a skill, an MCP server and a sub-agent', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startHarness(
      {
        system_prompt: 'You are desk.',
        tools: ['calculator', 'write_state'],
        confirm_tools: ['write_state'],
        skills: ['haiku'],
        mcp_servers: [{ name: 'words', url: mcp.url, headers: { authorization: 'Bearer ${WORDS_TOKEN}' } }],
        limits: { max_llm_calls: 6 },
        sub_agents: [
          {
            name: 'poet',
            description: 'Writes poems.',
            system_prompt: 'You are poet.',
            model: 'large',
            tools: ['current_time'],
          },
        ],
      },
      { SKILLS_DIR: 'test/support/skills', WORDS_TOKEN: 'token-of-words' },
    );
  });
  afterAll(() => app.close());

  test('a tool call', async () => {
    expect(await invoke(app, 'tool', 'use calculator {"expression":"17 * 23"}')).toEqual(
      answered(`desk (small) has ${TOOLS}: {"result":391}`),
    );
  });

  test('a call of an MCP tool, with the token of the environment', async () => {
    mcp.headers.length = 0;
    expect(await invoke(app, 'mcp', 'use shout {"text":"tea"}')).toEqual(
      answered(`desk (small) has ${TOOLS}: {"result":"TEA"}`),
    );
    expect(new Set(mcp.headers.map((headers) => headers.authorization))).toEqual(new Set(['Bearer token-of-words']));
  });

  test('a skill', async () => {
    const [, body] = await invoke(app, 'skill', 'use load_skill {"name":"haiku"}');
    expect(body).toMatchObject({ output: expect.stringContaining('5, 7 and 5 syllables'), error: null });
  });

  test('a transfer: the sub-agent answers, with its own model and tools, also the next prompt', async () => {
    expect(await invoke(app, 'poem', 'a poem')).toEqual(answered('Roses are red.'));
    const events = await stored(app, 'poem');
    expect(events.map(({ author, actions }) => [author, actions?.transferToAgent])).toEqual([
      ['user', undefined],
      ['harness_agent', undefined],
      ['harness_agent', 'poet'],
      ['poet', undefined],
    ]);
    const poet = provider.asked.findLast(({ system }) => system.startsWith('You are poet.'));
    expect([poet?.model, poet?.tools]).toEqual(['large', ['current_time', 'transfer_to_agent']]);
    await invoke(app, 'poem', 'one more');
    expect((await stored(app, 'poem')).at(-1)?.author).toBe('poet');
  });

  test('a confirmation: the invocation pauses, a person decides, it goes on', async () => {
    await app.post(user, { sessionId: 'confirm' });
    const first = await run(app, 'confirm', message('use write_state {"key":"color","value":"blue"}'));
    const [request] = first
      .flatMap(({ content }) => getFunctionCalls(content))
      .filter(({ name }) => name !== 'write_state');
    expect(first.map(({ longRunningToolIds }) => longRunningToolIds)).toEqual([[], [request?.id], undefined]);
    expect(request).toMatchObject({
      name: 'adk_request_confirmation',
      args: {
        originalFunctionCall: { name: 'write_state', args: { key: 'color', value: 'blue' } },
        toolConfirmation: { confirmed: false },
      },
    });
    expect(await statuses(app, 'confirm')).toEqual(['paused']);
    expect((await app.get(`${user}/confirm`)).body).toMatchObject({ state: {} });

    const functionResponse = { id: request?.id, name: request?.name, response: { confirmed: true } };
    const second = await run(app, 'confirm', {
      invocationId: first[0]?.invocationId,
      newMessage: { role: 'user', parts: [{ functionResponse }] },
    });
    expect(second.map(({ content }) => getFunctionResponses(content).map(({ response }) => response))).toEqual([
      [{ kept: 'color' }],
      [],
    ]);
    expect(getAnswerText(second[1]?.content)).toBe(`desk (small) has ${TOOLS}: {"kept":"color"}`);
    expect(await statuses(app, 'confirm')).toEqual(['succeeded']);
    expect((await app.get(`${user}/confirm`)).body).toMatchObject({ state: { color: 'blue' } });
  });

  test('a confirmation that a caller without events is asked for: the error says how to give it', async () => {
    const [, body] = await invoke(app, 'asked', 'use write_state {"key":"color","value":"red"}');
    expect(body).toMatchObject({
      output: '',
      error:
        'The invocation waits for a person. Answer its task in the console, with `agent-runtime tasks answer`, or by ' +
        'PATCH /tasks/{id}; or answer its open function call with /run.',
    });
  });

  test('a rejection: the tool does not run', async () => {
    await app.post(user, { sessionId: 'reject' });
    const first = await run(app, 'reject', message('use write_state {"key":"color","value":"red"}'));
    const [id] = first[1]?.longRunningToolIds ?? [];
    const functionResponse = { id, name: 'adk_request_confirmation', response: { confirmed: false } };
    const second = await run(app, 'reject', { newMessage: { role: 'user', parts: [{ functionResponse }] } });
    expect(getFunctionResponses(second[0]?.content)[0]?.response).toEqual({ error: 'This tool call is rejected.' });
    expect(await statuses(app, 'reject')).toEqual(['succeeded', 'paused']);
    expect((await app.get(`${user}/reject`)).body).toMatchObject({ state: {} });
  });

  test('the limit of model calls', async () => {
    const asked = provider.asked.length;
    expect(await invoke(app, 'limit', 'for ever')).toEqual(failed('Max number of llm calls limit of `6` exceeded'));
    expect(provider.asked.length - asked).toBe(6);
    expect(await statuses(app, 'limit')).toEqual(['failed']);
  });

  test('50 invocations side by side with overrides of their own see only theirs', async () => {
    const other = await startMcpServer([{ name: 'whisper', call: ({ text }) => says(String(text).toLowerCase()) }]);
    onTestFinished(() => other.close());
    const skills = 'load_skill load_skill_resource';
    const kinds = [
      { harness: undefined, tools: TOOLS, ask: 'shout', model: 'small' },
      { harness: { mcp_servers: [] }, tools: TOOLS.replace('shout ', ''), ask: 'calculator', model: 'small' },
      {
        harness: { mcp_servers: [{ url: other.url }], tools: ['current_time'] },
        tools: `calculator current_time ${skills} transfer_to_agent whisper write_state`,
        ask: 'whisper',
        model: 'small',
      },
      { harness: { model_name: 'large' }, tools: TOOLS, ask: 'shout', model: 'large' },
      { harness: { temperature: 0.5, max_llm_calls: 2 }, tools: TOOLS, ask: 'calculator', model: 'small' },
    ];
    const first = provider.asked.length;
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, n) => {
        const { harness, ask } = kinds[n % 5] ?? expect.unreachable();
        const args = ask === 'calculator' ? { expression: `${n} + 1000` } : { text: `Tea ${n}` };
        const own =
          n % 5 === 0 ? undefined : { ...harness, ...(n % 2 ? { system_prompt: `You are agent_${n}.` } : {}) };
        return invoke(app, `side-${n}`, `use ${ask} ${JSON.stringify(args)}`, own);
      }),
    );
    const results = {
      shout: (n: number) => `TEA ${n}`,
      whisper: (n: number) => `tea ${n}`,
      calculator: (n: number) => n + 1000,
    };
    expect(answers).toEqual(
      answers.map((_, n) => {
        const { tools, ask, model, harness } = kinds[n % 5] ?? expect.unreachable();
        const isNamed = n % 5 !== 0 && n % 2 === 1;
        const result = JSON.stringify({ result: results[ask as keyof typeof results](n) });
        const isGeneral = isNamed || Object.keys(harness ?? {}).some((name) => name !== 'mcp_servers');
        return answered(`${isNamed ? `agent_${n}` : 'desk'} (${model}) has ${tools}: ${result}`, isGeneral);
      }),
    );
    const warm = provider.asked.slice(first).filter(({ body }) => body['temperature'] !== undefined);
    expect(warm.map(({ body, prompt }) => [body['temperature'], Number(/\d+/.exec(prompt)?.[0]) % 5])).toEqual(
      Array.from({ length: 20 }, () => [0.5, 4]),
    );
    await expect.poll(() => [other.openSessions(), mcp.openSessions()]).toEqual([0, 0]);
    // The deployed agent is as it was.
    expect(await invoke(app, 'after', 'use shout {"text":"tea"}')).toEqual(
      answered(`desk (small) has ${TOOLS}: {"result":"TEA"}`),
    );
  });

  test('an MCP server that is killed in the middle of calls fails those calls, and nobody else', async () => {
    const waiting: (() => void)[] = [];
    const gate = Promise.withResolvers<void>();
    const everybody = Promise.withResolvers<void>();
    const wait = async () => {
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        if (waiting.length === 12) everybody.resolve();
        void gate.promise.then(resolve);
      });
      return says('at last');
    };
    const tool = { name: 'wait', call: wait };
    const slow = await startMcpServer([tool]);
    const older = await startMcpServer([tool], { sse: true });
    const steady = await startMcpServer([tool]);
    onTestFinished(() => steady.close());
    const servers = [
      { name: 'slow', url: slow.url },
      { name: 'older', url: older.url },
      { name: 'steady', url: steady.url },
    ];
    const running = Array.from({ length: 12 }, (_, n) =>
      invoke(app, `killed-${n}`, 'use wait {}', { mcp_servers: [servers[n % 3]] }),
    );
    const of = (kind: number) => Promise.all(running.filter((_, n) => n % 3 === kind));
    await everybody.promise;
    slow.kill();
    older.kill();
    const tools = TOOLS.replace('shout ', '').replace('transfer_to_agent', 'transfer_to_agent wait');
    const told = (result: string) => Array.from({ length: 4 }, () => answered(`desk (small) has ${tools}: ${result}`));
    const broken = (name: string) =>
      '{"error":"It is not known whether this call took effect: ' +
      `MCP server \`${name}\` failed in \`wait\`. The connection failed. It was not repeated."}`;
    expect(await of(0)).toEqual(told(broken('slow')));
    expect(await of(1)).toEqual(told(broken('older')));
    gate.resolve();
    expect(await of(2)).toEqual(told('{"result":"at last"}'));
    expect(steady.openSessions()).toBe(0);
  });

  test('after 60 invocations no MCP session and no socket is left', async () => {
    const round = async (name: string) => {
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, n) => invoke(app, `${name}-${n}`, 'use shout {"text":"tea"}')),
      );
      expect(answers.map(([, body]) => (body as { error: unknown }).error)).toEqual(answers.map(() => null));
    };
    await round('warm');
    const before = openSockets();
    const asked = { ...mcp.counts };
    for (let number = 0; number < 3; number += 1) await round(`round-${number}`);
    expect(mcp.openSessions()).toBe(0);
    const since = (what: string) => (mcp.counts[what] ?? 0) - (asked[what] ?? 0);
    expect(['initialize', 'tools/list', 'tools/call', 'DELETE'].map(since)).toEqual([60, 60, 60, 60]);
    await expect.poll(() => mcp.openSockets()).toBe(0);
    await expect.poll(openSockets).toBeLessThanOrEqual(before);
  });
});

describe('agents that run others', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startHarness({
      type: 'sequential',
      sub_agents: [
        { name: 'writer', system_prompt: 'You are writer of {topic?}.', output_key: 'draft' },
        {
          name: 'panel',
          type: 'parallel',
          sub_agents: [
            { name: 'left', system_prompt: 'You are left. Draft: {draft}', tools: ['calculator'] },
            { name: 'right', system_prompt: 'You are right. Draft: {draft}' },
          ],
        },
        {
          name: 'polish',
          type: 'loop',
          max_iterations: 5,
          sub_agents: [{ name: 'editor', system_prompt: 'You are editor.', tools: ['exit_loop'] }],
        },
        { name: 'closer', system_prompt: 'You are closer.' },
      ],
    });
  });
  afterAll(() => app.close());

  test('in order, side by side, again and again: author and branch stand on their events', async () => {
    await app.post(user, { sessionId: 'flow', state: { topic: 'tea' } });
    const events = await run(app, 'flow', message('go'));
    expect(events).toEqual((await stored(app, 'flow')).slice(1));
    const told = ({ author, branch, content, actions }: Event) => {
      const [call] = getFunctionCalls(content);
      const [response] = getFunctionResponses(content);
      const what = call ? `calls ${call.name}` : response ? `${response.name} answers` : getAnswerText(content);
      return [author, branch, what, actions?.escalate];
    };
    const left = events.filter(({ author }) => author === 'left');
    expect(left.map(told)).toEqual([
      ['left', 'panel.left', 'calls calculator', undefined],
      ['left', 'panel.left', 'calculator answers', undefined],
      ['left', 'panel.left', 'Left is content.', undefined],
    ]);
    expect(events.filter(({ author }) => author !== 'left').map(told)).toEqual([
      ['writer', undefined, 'A draft.', undefined],
      ['right', 'panel.right', 'Right is content.', undefined],
      ['editor', undefined, 'Once more.', undefined],
      ['editor', undefined, 'calls exit_loop', undefined],
      ['editor', undefined, 'exit_loop answers', true],
      ['closer', undefined, 'The end.', undefined],
    ]);
    // Side by side may mix, but the panel stands between the writer and the editor.
    const authors = events.map(({ author }) => author);
    expect([authors[0], new Set(authors.slice(1, 5)), authors[5]]).toEqual([
      'writer',
      new Set(['left', 'right']),
      'editor',
    ]);
    expect((await app.get(`${user}/flow`)).body).toMatchObject({ state: { topic: 'tea', draft: 'A draft.' } });
    const systems = provider.asked.map(({ system }) => system);
    expect(systems).toEqual(
      expect.arrayContaining([
        'You are writer of tea.',
        'You are left. Draft: A draft.',
        'You are right. Draft: A draft.',
      ]),
    );
  });

  test('the answer is that of the last one', async () => {
    expect(await invoke(app, 'answer', 'go')).toEqual(answered('The end.'));
  });
});

describe('an instruction with names to fill in', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startHarness({
      system_prompt: 'You are clerk of {shop}, {user:name}, {app:city}, {mood?}. {artifact.rules.txt} {not a name}',
    });
  });
  afterAll(() => app.close());

  test('is filled in from the three scopes of the state and the artifacts', async () => {
    await app.post(user, { sessionId: 's', state: { shop: '{mood}', 'user:name': 'Ann', 'app:city': 'Rome' } });
    await app.post(`${user}/s/artifacts`, { filename: 'rules.txt', artifact: { text: 'Be kind.' } });
    expect((await invoke(app, 's', 'hi'))[1]).toMatchObject({ error: null });
    expect(provider.asked.at(-1)?.system).toBe('You are clerk of {mood}, Ann, Rome, . Be kind. {not a name}');
  });

  test('a name without a value is an error that says what to do', async () => {
    const asked = provider.asked.length;
    const error =
      "The instruction of the agent needs a value for `shop` in the session's state, which is not there. " +
      'Set it, or write {shop?} if it may be missing.';
    expect(await invoke(app, 'unset', 'hi')).toEqual(failed(error));
    expect((await stored(app, 'unset')).at(-1)).toMatchObject({ errorCode: 'instruction_unset', errorMessage: error });
    expect(provider.asked).toHaveLength(asked);
  });
});

test('compaction: older events become a summary for the model, and stay in the session', async () => {
  const app = await startHarness({ system_prompt: 'You are clerk.', tools: [], limits: { compact_above_tokens: 60 } });
  onTestFinished(() => app.close());
  const long = (name: string) => `${name} ${'word '.repeat(40)}`;
  for (const name of ['first', 'second', 'third']) await invoke(app, 'long', long(name));
  const events = await stored(app, 'long');
  const [compaction] = events.flatMap(({ actions }) => (actions?.compaction ? [actions.compaction] : []));
  const summary = compaction?.compactedContent?.parts?.[0]?.text ?? '';
  expect(summary).toMatch(/^Summary of the earlier conversation:\n/);
  const covered = [compaction?.startTimestamp, compaction?.endTimestamp];
  expect(covered).toEqual([events[0]?.timestamp, events[1]?.timestamp]);
  const texts = events.filter(({ author }) => author === 'user').map(({ content }) => getAnswerText(content));
  expect(texts).toEqual(['first', 'second', 'third'].map(long));
  const seen = JSON.stringify(provider.asked.at(-1)?.messages);
  expect(['Summary of the earlier', 'second word', 'third word'].map((text) => seen.includes(text))).toEqual([
    true,
    true,
    true,
  ]);
});
