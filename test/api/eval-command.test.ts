import { once } from 'node:events';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** `agent-runtime eval run` as CI runs it, beside a service on the same database. */

const app = testApp({ TOOLS: 'calculator' });
const COMMAND = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-eval-'));
const D = '/dev/apps/harness_agent';
const text = (said: string, role = 'user') => ({ role, parts: [{ text: said }] });

const command = async (...args: string[]) => {
  const environment = { DATABASE_URL: app.databaseUrl, TOOLS: 'calculator', LOG_LEVEL: 'silent' };
  const { code, out, error } = await startProcess(process.execPath, [COMMAND, 'eval', ...args], environment).end;
  return { code, out, error };
};
const evaluate = (...args: string[]) => command('run', ...args);

test('a table, a report and the exit code; a later run names what changed', async () => {
  const right = { userContent: text('What is 2 + 3? Use the calculator.') };
  const call = { name: 'calculator', args: { expression: '2 + 3' } };
  const evalCase = (evalId: string, toolUses: object[]) => ({
    evalId,
    conversation: [{ ...right, intermediateData: { toolUses } }],
  });
  const cases = [evalCase('calls', [call]), evalCase('silent', [])];
  await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 's', eval_cases: cases } });
  const config = join(folder, 'test_config.json');
  writeFileSync(config, JSON.stringify({ criteria: { tool_trajectory_avg_score: 1 } }));
  const junit = join(folder, 'junit.xml');

  const good = await evaluate('s:calls', '--config', config, '--trials', '2');
  expect([good.error, good.code]).toEqual(['', 0]);
  const [, baseline = ''] = /^s, run (\S+)\n/.exec(good.out) ?? [];
  expect(good.out).toMatch(/\nok {2}calls +2\/2 +34 %–100 % +1\.00\n\n1 of 1 cases passed\.\n/);

  await app.send('PUT', `${D}/eval-sets/s/eval-cases/calls`, evalCase('calls', []));
  const bad = await evaluate('s:calls', '--config', config, '--junit', junit, '--baseline', baseline);
  expect(bad.code).toBe(1);
  expect(bad.out).toContain(
    '\ncalls: tool_trajectory_avg_score: 0 is below 1.\n  turn 1\n    expected calls: none\n' +
      '    actual calls:   calculator {"expression":"2 + 3"}\n\n0 of 1',
  );
  const said = { ...evalCase('said', [call]).conversation[0], finalResponse: text('The tool answered five', 'model') };
  await app.post(`${D}/eval-sets`, {
    evalSet: { eval_set_id: 'words', eval_cases: [{ evalId: 'said', conversation: [said] }] },
  });
  writeFileSync(config, JSON.stringify({ criteria: { response_match_score: 0.9 } }));
  const near = await evaluate('words', '--config', config);
  expect(near.out).toContain(
    '\nsaid: response_match_score: 0.6667 is below 0.9.\n  turn 1\n' +
      '    expected answer: The tool answered five\n    actual answer:   The tool `calculator` answered: 5\n',
  );
  expect(bad.out).toContain('\nAgainst the baseline: won none; lost calls; worse none; p = 1.000.\n');
  expect(readFileSync(junit, 'utf8')).toContain('<testsuite name="s" tests="1" failures="1" errors="0">');
});

test('what cannot be run is exit code 2, with the reason', async () => {
  await app.post(`${D}/eval_sets/empty`);
  for (const [args, reason] of [
    [['empty'], 'Eval set `empty` has no cases.'],
    [['nope'], 'Eval set `nope` not found.'],
    [['empty', '--threshold', '2'], '--threshold is a number from 0 to 1.'],
  ] as const) {
    expect(await evaluate(...args)).toEqual({ code: 2, out: '', error: `${reason}\n` });
  }
});

test('sessions become cases by a condition in SQL, which can only read and says what is wrong with it', async () => {
  for (const sessionId of ['one', 'two']) {
    await app.post(`/apps/harness_agent/users/u/sessions/${sessionId}`, { state: { vip: sessionId === 'one' } });
    const newMessage = text('What is 2 + 3? Use the calculator.');
    await app.post('/run', { appName: 'harness_agent', userId: 'u', sessionId, newMessage });
  }
  const add = (...args: string[]) => command('add', 'chosen', ...args, '--url', app.url);
  const vip = await add('--where', "(s.state ->> 'vip')::boolean -- those who matter", '--tool', 'calculator');
  expect(vip).toEqual({ code: 0, out: 'one\n', error: '' });
  expect((await app.get(`${D}/eval_sets/chosen/evals`)).body).toEqual(['one']);
  for (const [predicate, reason] of [
    ['s.nope = 1', 'column s.nope does not exist'],
    ['true)); delete from sessions; select ((true', '(?:syntax error|cannot insert multiple commands)'],
    [
      "set_config('transaction_read_only', 'off', true) = 'off'",
      'transaction read-write mode must be set before any query',
    ],
  ] as const) {
    const refused = await add('--where', predicate);
    expect([refused.code, refused.out]).toEqual([2, '']);
    expect(refused.error).toMatch(new RegExp(`^--where: ${reason}[^\n]*\\.\n$`));
  }
  expect((await app.get('/apps/harness_agent/users/u/sessions')).body).toHaveLength(2);
});

test('a set is printed or written as the file that ADK reads, also from a service below a path', async () => {
  const silent = { author: 'a', usageMetadata: { promptTokenCount: 1 } };
  const turn = { userContent: text('Hi'), intermediateData: { invocationEvents: [silent] } };
  await app.post(`${D}/eval-sets`, {
    evalSet: { eval_set_id: 'out', eval_cases: [{ evalId: 'c', conversation: [turn] }] },
  });
  const { text: file } = await app.get(`${D}/eval-sets/out/file`);
  const proxy = createServer((request, response) => {
    void fetch(app.url + (request.url ?? '').replace(/^\/below\/it/, ''), { redirect: 'manual' }).then(async (answer) =>
      response.writeHead(answer.status, { 'x-request-id': 'proxied' }).end(await answer.text()),
    );
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/below/it/`;
  const out = join(folder, 'out.evalset.json');
  const lacks =
    'The file lacks what some version of ADK refuses: ' +
    'eval_cases[0].conversation[0].intermediate_data.invocation_events[0].\n';
  expect(await command('export', 'out', '--url', url)).toEqual({ code: 0, out: `${file}\n`, error: lacks });
  expect(await command('export', 'out', '--url', url, '--out', out)).toEqual({ code: 0, out: '', error: lacks });
  expect(readFileSync(out, 'utf8')).toBe(`${file}\n`);
  expect(await command('export', 'none', '--url', url)).toMatchObject({
    code: 2,
    error: 'Eval set `none` not found.\n',
  });
  proxy.close();
});
