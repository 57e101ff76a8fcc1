import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { createProgram, runProgram } from '../../src/cli/program.ts';
import { SCOPES } from '../../src/platform/http/operation/principal.ts';
import { tool } from '../support/agent-fixtures.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { close, listen } from '../support/edge.ts';
import { callPart } from '../support/scripted-model.ts';
import { startProcess } from '../support/service-process.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/** Every command that talks to a service, beside one of each mode, and what the command line says where it cannot. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const KEY = 'a-key-of-thirty-two-characters-00';
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-modes-'));
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
let issuer: TokenIssuer;
beforeAll(async () => {
  issuer = await startTokenIssuer();
});
afterAll(async () => {
  await issuer.close();
  rmSync(folder, { recursive: true, force: true });
});
afterEach(() => void vi.unstubAllEnvs());

const tokenOf = async (expires?: string) => {
  const { authorization = '' } = await issuer.headersOf('ann', {
    scopes: SCOPES.join(' '),
    ...(expires === undefined ? {} : { expires }),
  });
  return authorization.replace('Bearer ', '');
};

/** Runs a command line in this process, as user `ann`, with a credential in the environment. */
async function type(url: string, credential: string | undefined, args: string[]) {
  vi.stubEnv('AGENT_RUNTIME_KEY', credential);
  const [out, error]: [string[], string[]] = [[], []];
  const take = (to: string[]) => (text: string | Uint8Array) => to.push(Buffer.from(text as string).toString()) > 0;
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation(take(out)),
    vi.spyOn(process.stderr, 'write').mockImplementation(take(error)),
    vi.spyOn(console, 'log').mockImplementation((text) => void out.push(`${text}\n`)),
    vi.spyOn(console, 'error').mockImplementation((text) => void error.push(`${(text as Error)?.stack ?? text}\n`)),
  ];
  const code = await runProgram(['--url', url, '--user', 'ann', ...args]).finally(() =>
    spies.forEach((spy) => spy.mockRestore()),
  );
  return { code, out: out.join(''), error: error.join('') };
}

const ONLY_KEYS = 'This operation is for runtime keys, not for tokens of users.\n';
/** What a run before has told, by name: ids, and files that were written. */
type Told = Record<string, string>;
type Row = [name: string, args: (told: Told) => string[], said: RegExp, tell?: (out: string) => Told];

const ROWS: Row[] = [
  ['invoke', () => ['invoke', '--session', 's1', 'What is 17 * 23? Use the calculator.'], /^The tool .* 391\n$/],
  ['sessions list', () => ['sessions', 'list'], /\ns1 .*What is 17/],
  ['sessions show', () => ['sessions', 'show', 's1'], /^user: What is 17 .*\n(.*\n){2}.* 391\n$/],
  ['sessions fork', () => ['sessions', 'fork', 's1', '--at', '1', '--id', 's2'], /^s2\n$/],
  ['sessions diff', () => ['sessions', 'diff', 's1', 's1'], /^4 events are the same, then 0 differ/],
  ['sessions label', () => ['sessions', 'label', 's1', 'env=prod'], /^env=prod\n$/],
  [
    'sessions export',
    () => ['sessions', 'export', 's1'],
    /^\{"id":"s1",.*\}\n$/,
    (out) => ({ sessions: file('sessions.jsonl', out.replace('"id":"s1"', '"id":"s3"')) }),
  ],
  ['import', ({ sessions = '' }) => ['import', sessions], /: 1 imported, 0 were there, 0 versions/],
  ['artifacts put', () => ['artifacts', 'put', 's1', file('note.txt', 'hello')], /^note\.txt, version 0\n$/],
  ['artifacts list', () => ['artifacts', 'list', 's1'], /^note\.txt\n$/],
  ['artifacts get', () => ['artifacts', 'get', 's1', 'note.txt'], /^hello$/],
  ['artifacts get', () => ['artifacts', 'get', 's1', 'note.txt', '--version', '0'], /^hello$/],
  ['replay', () => ['replay', 's1'], /: same\. 3 events compared/],
  ['eval add', () => ['eval', 'add', 'smoke', '--label', 'env=prod'], /^\S+\n$/],
  [
    'eval run',
    () => ['eval', 'run', 'smoke'],
    /^smoke, run \S+\n[^]*1 of 1 cases passed/,
    (out) => ({ run: / run (\S+)\n/.exec(out)?.[1] ?? '' }),
  ],
  ['eval export', () => ['eval', 'export', 'smoke'], /^\{\n {2}"eval_set_id": "smoke",/],
  ['eval list', () => ['eval', 'list', 'smoke'], /\n\S+ +smoke +\S+ +1\/1\n$/],
  ['eval compare', ({ run = '' }) => ['eval', 'compare', run, run], /Against the baseline: won none; lost none/],
  ['cron list', () => ['cron', 'list'], /^cronjob .*\n\S+ +ann +yes .* Sums\n$/],
  ['cron list --all', () => ['--json', 'cron', 'list', '--all'], /^\[\{"jobId":.*\}\]\n$/],
  ['cron run', ({ job = '' }) => ['cron', 'run', job], /^run \S+: queued\n$/],
  [
    'invocations list',
    () => ['invocations', 'list', '--text', '17'],
    /^requested .*\n(?:.*\n)*\S+ \S+ +succeeded +– +harness_agent +ann +s1 +\S+ +What is 17.*\n$/,
  ],
  [
    'invocations cancel',
    ({ invocation = '' }) => ['invocations', 'cancel', 'halted', invocation],
    /^invocation \S+: cancelled\n$/,
  ],
  [
    'budgets list',
    () => ['budgets', 'list', '--of', 'ann'],
    /^applies to .*\nusers +– +month +– +\d+ +– +\d+ +1000 +0 +no\n$/,
  ],
  [
    'budgets set',
    () => ['budgets', 'set', 'user', 'day', '--for', 'bob', '--max-tokens', '1000', '--max-cost', '2.5'],
    /^budget of bob in harness_agent for each day: set\n$/,
  ],
  ['budgets list', () => ['budgets', 'list'], /^user +bob +day +– +\d+ +1000 +\d+ +2\.5 +0 +no$/m],
  [
    'budgets remove',
    () => ['budgets', 'remove', 'user', 'day', '--for', 'bob'],
    /^budget of bob in harness_agent for each day: removed\n$/,
  ],
  ['tasks list', () => ['tasks', 'list'], /^task .*\n\S+ +question +ann .* Which size\?\n$/],
  [
    'tasks answer',
    ({ task = '' }) => ['tasks', 'answer', task, '--answer', '{"size":"L"}'],
    /^task \S+: (?:answered|done)\n$/,
  ],
  ['tasks list', () => ['tasks', 'list'], /^No open tasks for `ann`; --all lists those of all\.\n$/],
  ['retention', () => ['retention'], /^0 sessions, 0 versions of artifacts would be deleted\n$/],
  ['users list', () => ['users', 'list'], /^user\nann\n$/],
  ['users export', () => ['users', 'export', 'ann'], /^\{"kind":"agent-runtime user export"/],
  ['users erase', () => ['users', 'erase', 'ann', '--dry-run'], /^harness_agent: \d+ would be deleted\n/],
];

/** Commands that people with a token cannot use: what belongs to the operator. */
const FOR_KEYS = ['cron list --all', 'retention', 'users list', 'users erase', 'users export'];
/** What runs without a service: their tests are elsewhere. */
const ALONE = ['start', 'dev', 'migrate', 'check', 'doctor', 'openapi', 'init', 'completion', 'keys create', 'mcp'];

test('the table has every command that talks to a service', () => {
  const list = (command: Command, path: string): string[] =>
    command.commands.length === 0
      ? [path.trim()]
      : command.commands.flatMap((each) => list(each, `${path} ${each.name()}`));
  const all = list(
    createProgram(() => undefined),
    '',
  );
  expect(
    [...new Set([...ALONE, 'chat', 'tasks watch', ...ROWS.map(([name]) => name.replace(' --all', ''))])].toSorted(),
  ).toEqual(all.toSorted());
});

describe.each(['local', 'key', 'jwt'] as const)('beside a service in mode %s', (mode) => {
  let app: TestApp;
  let credential: string | undefined;
  const told: Told = {};
  beforeAll(async () => {
    const settings = { local: {}, key: { RUNTIME_API_KEYS: KEY }, jwt: issuer.environment }[mode];
    app = await startApp({ TOOLS: 'calculator,ask_person', CRONJOBS: 'true', ...settings });
    credential = { local: undefined, key: KEY, jwt: await tokenOf() }[mode];
    const headers = credential === undefined ? {} : { authorization: `Bearer ${credential}` };
    const schedule = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
    const job = { ownerId: 'ann', name: 'Sums', prompt: 'hello', schedule };
    const { body } = await app.post('/harness/cronjobs', job, headers);
    told['job'] = (body as { jobId: string }).jobId;
    const ask = async (sessionId: string, question: string) => {
      await app.post('/apps/harness_agent/users/ann/sessions', { sessionId }, headers);
      const newMessage = { role: 'user', parts: [{ text: `ask_person ${JSON.stringify({ question })}` }] };
      const request = { appName: 'harness_agent', userId: 'ann', sessionId, newMessage };
      return (await app.post('/run', request, headers)).body as { invocationId: string }[];
    };
    await ask('asked', 'Which size?');
    told['invocation'] = (await ask('halted', 'Which colour?'))[0]?.invocationId ?? '';
    const budget = { appliesTo: 'users', period: 'month', maxCost: 1000 };
    await app.send('PUT', '/apps/harness_agent/budgets', budget, headers);
    const { items } = (await app.get('/tasks', headers)).body as { items: { id: string; sessionId: string }[] };
    told['task'] = items.find(({ sessionId }) => sessionId === 'asked')?.id ?? '';
  });
  afterAll(() => app.close());

  test.each(ROWS)('%s', async (name, args, said, tell) => {
    const answer = await type(app.url, credential, args(told));
    if (mode === 'jwt' && FOR_KEYS.includes(name)) {
      expect(answer).toEqual({ code: 1, out: '', error: ONLY_KEYS });
      return;
    }
    expect(answer).toEqual({ code: 0, out: expect.stringMatching(said), error: '' });
    Object.assign(told, tell?.(answer.out));
  });

  test('chat', async () => {
    const environment = credential === undefined ? {} : { AGENT_RUNTIME_KEY: credential };
    const args = [MAIN, '--url', app.url, '--user', 'ann', 'chat', '--session', 's1'];
    const chat = startProcess(process.execPath, args, environment);
    chat.child.stdin?.end('Hello.\n');
    const { code, out, error } = await chat.end;
    expect([code, error]).toEqual([0, '']);
    expect(out).toMatch(/^Session s1 of ann with harness_agent[^]*391\n[^]*Hello/);
  });

  test('tasks watch prints each open task once, as it comes', async () => {
    const headers = credential === undefined ? {} : { authorization: `Bearer ${credential}` };
    const environment = credential === undefined ? {} : { AGENT_RUNTIME_KEY: credential };
    const ask = async (sessionId: string) => {
      await app.post('/apps/harness_agent/users/ann/sessions', { sessionId }, headers);
      const newMessage = { role: 'user', parts: [{ text: `ask_person {"question":"For ${sessionId}?"}` }] };
      await app.post('/run', { appName: 'harness_agent', userId: 'ann', sessionId, newMessage }, headers);
    };
    await ask('w1');
    const watch = startProcess(
      process.execPath,
      [MAIN, '--url', app.url, '--user', 'ann', 'tasks', 'watch'],
      environment,
    );
    await watch.until('For w1?\n');
    await ask('w2');
    await watch.until('For w2?\n');
    await ask('w3');
    await watch.until('For w3?\n');
    watch.child.kill('SIGTERM');
    const { out, error } = await watch.end;
    expect(error).toBe('');
    expect(out).toMatch(/^\S+ +question +ann +– +ask_person +For w1\?\n(\S+ .* For w2\?\n)(\S+ .* For w3\?\n)$/);
  });

  test('without a credential, with a wrong one and with an old one a sentence says which it is', async () => {
    if (mode === 'local') return expect(credential).toBeUndefined();
    const list = async (sent?: string) => (await type(app.url, sent, ['sessions', 'list'])).error;
    expect(await list()).toBe('The service asks for a credential: put its key or a token into AGENT_RUNTIME_KEY.\n');
    const refused = 'The service does not accept the credential in AGENT_RUNTIME_KEY.\n';
    expect(await list('wrong')).toBe(refused);
    if (mode === 'jwt') expect(await list(await tokenOf('-1h'))).toBe('The token in AGENT_RUNTIME_KEY has expired.\n');
  });
});

test('beside a service that takes keys and tokens each does what is its own', async () => {
  const app = await startApp({ RUNTIME_API_KEYS: KEY, ...issuer.environment });
  try {
    const token = await tokenOf();
    expect((await type(app.url, token, ['sessions', 'list'])).code).toBe(0);
    expect(await type(app.url, token, ['users', 'list'])).toEqual({ code: 1, out: '', error: ONLY_KEYS });
    expect((await type(app.url, KEY, ['users', 'list'])).code).toBe(0);
    const expired = 'The token in AGENT_RUNTIME_KEY has expired.\n';
    expect((await type(app.url, await tokenOf('-1h'), ['sessions', 'list'])).error).toBe(expired);
  } finally {
    await app.close();
  }
});

test('evaluation beside a service without the development UI, with EVALS and without', async () => {
  const app = await startApp({ TOOLS: 'calculator', DEV_UI: 'false', EVALS: 'true' });
  try {
    const said = async (...args: string[]) => {
      const { code, out, error } = await type(app.url, undefined, args);
      expect([code, error]).toEqual([0, '']);
      return out;
    };
    const turn = { user_content: { parts: [{ text: 'What is 17 * 23? Use the calculator.' }] } };
    const tool_uses = [{ name: 'calculator', args: { expression: '17 * 23' } }];
    const cases = [{ eval_id: 'c', conversation: [{ ...turn, intermediate_data: { tool_uses } }] }];
    const set = file('sums.evalset.json', JSON.stringify({ eval_set_id: 'sums', eval_cases: cases }));
    expect(await said('import', set)).toContain('sums: 1 case imported');
    const config = file('criteria.json', JSON.stringify({ criteria: { tool_trajectory_avg_score: 1 } }));
    const out = await said('eval', 'run', 'sums', '--config', config);
    expect(out).toContain('1 of 1 cases passed');
    const run = / run (\S+)\n/.exec(out)?.[1] ?? '';
    expect(await said('eval', 'compare', run, run)).toContain('lost none');
    expect(await said('eval', 'list')).toContain(run);
    expect(await said('eval', 'export', 'sums')).toContain('"eval_set_id": "sums"');
    expect(await said('eval', 'add', 'kept')).toBe('No session was chosen.\n');
  } finally {
    await app.close();
  }
  const without = await startApp({ DEV_UI: 'false' });
  try {
    const error = 'Not Found. It is served with EVALS=true.\n';
    expect(await type(without.url, undefined, ['eval', 'run', 'sums'])).toEqual({ code: 2, out: '', error });
  } finally {
    await without.close();
  }
});

test('invoke says how a call that waits is answered', async () => {
  const pay = tool('pay', async () => ({ paid: true }), { needsConfirmation: true });
  const app = await startApp({}, { agents: hostScript([[callPart('pay')], [{ text: 'Paid.' }]], [pay]) });
  try {
    const { out } = await type(app.url, undefined, ['invoke', '--session', 's1', 'Pay.']);
    const given = `--user ann --url ${app.url}`;
    expect(out).toBe(
      `Waits for a confirmation of pay.\nAnswer in the console, or: agent-runtime ${given} tasks answer <id> ` +
        `(agent-runtime ${given} tasks list)\n`,
    );
    const [id = ''] = /^[\da-f-]{36}/m.exec((await type(app.url, undefined, ['tasks', 'list'])).out) ?? [];
    expect((await type(app.url, undefined, ['tasks', 'answer', id])).code).toBe(0);
    const show = async () => (await type(app.url, undefined, ['sessions', 'show', 's1'])).out;
    await expect.poll(show).toContain('harness_agent: Paid.');
  } finally {
    await app.close();
  }
});

test('chat shows the hint of a tool, and its answer lets the same invocation go on', async () => {
  const wait = { hint: 'Does the reader have a card?' };
  const lend = tool('lend', async () => ({ lent: true }), { needsConfirmation: true, wait });
  const app = await startApp({}, { agents: hostScript([[callPart('lend')], [{ text: 'Lent.' }]], [lend]) });
  try {
    const chat = startProcess(process.execPath, [MAIN, '--url', app.url, '--user', 'ann', 'chat'], {});
    chat.child.stdin?.end('Lend.\ny\n');
    const { out } = await chat.end;
    expect(out).toContain('Lent.');
    const listed = await type(app.url, undefined, ['--json', 'invocations', 'list']);
    expect(listed.out.match(/"status": ?"\w+"/g)).toEqual([expect.stringContaining('succeeded')]);
    const history = JSON.stringify((await app.get('/apps/harness_agent/users/ann/sessions')).body);
    const [session = ''] = /(?<="id":")[^"]+/.exec(history) ?? [];
    const { text } = await app.get(`/apps/harness_agent/users/ann/sessions/${session}`);
    expect(text.match(/Does the reader have a card\?/g)).toHaveLength(2);
  } finally {
    await app.close();
  }
});

test('an import of a set that exists says how to replace it', async () => {
  const app = await startApp({});
  try {
    const set = file('stock.evalset.json', JSON.stringify({ eval_set_id: 'stock', eval_cases: [] }));
    expect((await type(app.url, undefined, ['import', set])).code).toBe(0);
    expect(await type(app.url, undefined, ['import', set])).toEqual({
      code: 1,
      out: '',
      error: 'EvalSet stock already exists for app harness_agent. --replace puts this one in its place.\n',
    });
    const said = (text: string) => ({ role: 'user', parts: [{ text }] });
    const eval_cases = [{ evalId: 'fresh', conversation: [{ userContent: said('Hi') }] }];
    const later = file('stock.evalset.json', JSON.stringify({ eval_set_id: 'stock', eval_cases }));
    expect((await type(app.url, undefined, ['import', later, '--replace', '--dry-run'])).code).toBe(0);
    const idsOf = async () => (await app.get('/dev/apps/harness_agent/eval_sets/stock/evals')).body;
    expect(await idsOf()).toEqual([]);
    expect(await type(app.url, undefined, ['import', later, '--replace'])).toEqual({
      code: 0,
      out: 'Evaluation set stock: 1 case imported. Run it: agent-runtime eval run stock\n',
      error: '',
    });
    expect(await idsOf()).toEqual(['fresh']);
    const wrong = file(
      'stock.evalset.json',
      JSON.stringify({ eval_set_id: 'stock', eval_cases: [...eval_cases, ...eval_cases] }),
    );
    expect((await type(app.url, undefined, ['import', wrong, '--replace'])).code).toBe(1);
    expect(await idsOf()).toEqual(['fresh']);
  } finally {
    await app.close();
  }
});

test('a service that reloads is waited for, and a connection that it ends is one sentence', async () => {
  let probes = 0;
  const server = createServer(({ url }, response) => {
    if (url === '/version' && ++probes === 1) response.destroy();
    else if (url === '/version') response.end('{"language":"typescript"}');
    else response.writeHead(200, { 'x-request-id': 'r', 'content-length': '9' }).write('[', () => response.destroy());
  });
  const port = await listen(server);
  mkdirSync(join(folder, 'held', 'data'), { recursive: true });
  file('held/data/postmaster.pid', '1');
  try {
    const held = { PORT: String(port), DATA_DIR: join(folder, 'held') };
    const { code, error } = await startProcess(process.execPath, [MAIN, 'sessions', 'list'], held).end;
    expect([code, error]).toEqual([1, expect.stringMatching(/^The connection to http:\S+ was lost: .*\n$/)]);
    expect(probes).toBe(2);
  } finally {
    await close(server);
  }
});

describe('what cannot be done is one sentence', () => {
  const server = createServer((_request, response) => response.end('<p>Hello</p>'));
  let port: number;
  beforeAll(async () => {
    port = await listen(server);
  });
  afterAll(() => close(server));
  const nowhere = join(folder, 'nowhere');

  test.each([
    ['a server of another kind', ['sessions', 'list'], 1, () => `http://127.0.0.1:${port} is no agent runtime.\n`],
    ['one, for a list in pages', ['users', 'list'], 1, () => `http://127.0.0.1:${port} is no agent runtime.\n`],
    [
      'a file that is absent',
      ['artifacts', 'put', 's', nowhere],
      2,
      () => `ENOENT: no such file or directory, open '${nowhere}'\n`,
    ],
    ['a source that is absent', ['import', nowhere], 2, () => `There is no file ${nowhere} that can be read.\n`],
    [
      'a set that is absent',
      ['import', `${nowhere}.evalset.json`],
      2,
      () => `ENOENT: no such file or directory, open '${nowhere}.evalset.json'\n`,
    ],
    [
      'a set that is no JSON',
      ['import', file('bad.evalset.json', '{')],
      2,
      () => `${folder}/bad.evalset.json is no JSON.\n`,
    ],
    [
      'a configuration that is absent',
      ['eval', 'run', 's', '--config', nowhere],
      2,
      () => `ENOENT: no such file or directory, open '${nowhere}'\n`,
    ],
    [
      'a configuration that is no JSON',
      ['eval', 'run', 's', '--config', file('bad.json', '{')],
      2,
      () => `${folder}/bad.json is no JSON.\n`,
    ],
  ])('%s', async (_, args, code, error) => {
    expect(await type(`http://127.0.0.1:${port}`, undefined, args)).toEqual({ code, out: '', error: error() });
  });

  test('an address where nothing listens, and https where http is spoken', async () => {
    const closed = createServer();
    const place = `127.0.0.1:${await listen(closed)}`;
    await close(closed);
    const away = await type(`http://${place}`, undefined, ['sessions', 'list']);
    expect(away.error).toBe(`http://${place} cannot be reached: connect ECONNREFUSED ${place}.\n`);
    const secure = `https://127.0.0.1:${port}`;
    const plain = await type(secure, undefined, ['sessions', 'list']);
    expect(plain).toEqual({
      code: 2,
      out: '',
      error: `${secure} cannot be reached: no https is spoken there, try http.\n`,
    });
  });
});
