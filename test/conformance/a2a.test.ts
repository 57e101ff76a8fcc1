import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { callPart } from '../support/scripted-model.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * The protocol's own suites (github.com/a2aproject/a2a-tck) against the door, each run from a copy that is given: of
 * commit 357c4a8 for 1.0, of eb1f804 for 0.3. Python is that of the copy's `.venv`.
 */
const SUITES = [
  {
    name: '1.0',
    copy: process.env['A2A_TCK'] ?? '',
    toArgs: (url: string) => ['tests/compatibility', `--sut-host=${url}`, '--transport=jsonrpc,http_json'],
  },
  {
    name: '0.3',
    copy: process.env['A2A_TCK_03'] ?? '',
    toArgs: (url: string) => [
      'tests/mandatory',
      'tests/optional',
      `--sut-url=${url}`,
      '--transports=jsonrpc',
      '--test-scope=all',
    ],
  },
];

const text = (value: string): Part[] => [{ text: value }];
const file = { mimeType: 'text/plain', displayName: 'output.txt' };
/** The suite of 1.0 says what an agent is to do by how the id of its message begins, that of 0.3 means it. */
const SCRIPT: [id: RegExp, parts: Part[]][] = [
  [/^tck-artifact-text/, text('Generated text content')],
  [/^tck-artifact-file-url/, [{ fileData: { fileUri: 'https://example.com/output.txt', ...file } }]],
  [/^tck-(?:stream-)?artifact-file/, [{ inlineData: { data: 'dGV4dA==', ...file } }]],
  [
    /^tck-input-required|^test-history|^sdk-test|^test-sdk|^test-message|text|cancel|mapping|update|^test-resilience/,
    [callPart('ask', { question: 'More?' })],
  ],
  [/^tck-stream-001/, text('Stream hello from TCK')],
  [/^tck-stream-003/, text('Stream task lifecycle')],
  [/^tck-stream-ordering-001/, text('Ordered output')],
  [/^tck-stream-artifact-chunked/, [{ text: 'chunk-1 ' }, { text: 'chunk-2' }]],
  [/^/, text('Hello from TCK')],
];
/** Twice the time that the suite gives a stream. */
const LONG_MS = 4_000;

const model: Model = {
  provider: 'scripted',
  async *generate({ contents, signal }: ModelRequest) {
    const id = (contents.at(-1)?.parts?.[0]?.partMetadata?.['a2aMessageId'] ?? '') as string;
    const [, parts] = SCRIPT.find(([pattern]) => pattern.test(id)) as (typeof SCRIPT)[number];
    if (/resubscribe/.test(id)) await sleep(LONG_MS, undefined, { signal });
    for (const part of parts) if (part.text) yield { content: { role: 'model', parts: [part] }, modelVersion: 'tck' };
    const joined = parts.every((part) => part.text) ? text(parts.map((part) => part.text).join('')) : parts;
    return { content: { role: 'model', parts: joined }, modelVersion: 'tck', finishReason: 'STOP' };
  },
};
const ask = {
  name: 'ask',
  description: '',
  parameters: { type: 'object' },
  needsConfirmation: false,
  longRunning: true,
  run: () => Promise.resolve(undefined),
};

/**
 * Starts the service behind a proxy that gives each message an id of its own: the suite has one for many messages, and
 * the same message again is here the same task. It hands push notifications on too: the suite's receiver has any port,
 * and the service sends to origins that it is told. What the suites ask at the root of the host is that application's.
 */
async function startUnderTest(): Promise<string> {
  let app: TestApp | undefined;
  let count = 0;
  const proxy = createServer((came, answer) => {
    const chunks: Buffer[] = [];
    came.on('data', (chunk: Buffer) => chunks.push(chunk));
    came.on('end', () => {
      const body = Buffer.concat(chunks)
        .toString()
        .replaceAll(/("messageId"\s*:\s*"[^"]+)"/g, (_, before: string) => `${before}-${++count}"`)
        .replaceAll(/http:\/\/localhost:(\d+)\/webhook/g, `${toOrigin()}/hooks/$1`);
      const { 'content-length': _, 'transfer-encoding': __, ...headers } = came.headers;
      const options = { method: came.method, headers: { ...headers, 'content-length': Buffer.byteLength(body) } };
      const [, port] = /^\/hooks\/(\d+)$/.exec(came.url ?? '') ?? [];
      const path = came.url === '/' ? '/a2a/harness_agent' : (came.url ?? '');
      const sent = request(port ? `http://127.0.0.1:${port}/webhook` : new URL(path, app?.url), options, (got) => {
        answer.writeHead(got.statusCode ?? 502, got.headers);
        got.pipe(answer);
      });
      answer.on('close', () => sent.destroy());
      sent.on('error', () => answer.destroy());
      sent.end(body);
    });
  }).listen(0, '127.0.0.1');
  const toOrigin = () => `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  await new Promise((resolve) => proxy.once('listening', resolve));
  const hosts = { WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: `example.com,${toOrigin()}` };
  const started = await startApp({ DOORS: 'a2a', ...hosts }, { agents: hostAgent(model, [ask]) });
  app = started;
  onTestFinished(async () => {
    proxy.closeAllConnections();
    proxy.close();
    await started.close();
  });
  return toOrigin();
}

/** Runs a suite. @returns how many of its tests there were, and those that did not pass */
async function run(copy: string, args: string[]): Promise<{ passed: number; failed: string[]; output: string }> {
  const results = await mkdtemp(join(tmpdir(), 'agent-runtime-a2a-'));
  onTestFinished(() => rm(results, { recursive: true, force: true }));
  const report = join(results, 'report.xml');
  const own = join(copy, '.venv', 'bin', 'python');
  const options = { cwd: copy, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } };
  const all = ['-m', 'pytest', ...args, '-q', '-p', 'no:cacheprovider', '--tb=short', `--junitxml=${report}`];
  const output = await new Promise<string>((resolve) => {
    execFile(existsSync(own) ? own : 'python3', all, options, (_, stdout, stderr) => resolve(stdout + stderr));
  });
  if (!existsSync(report)) throw new Error(`The suite did not run:\n${output}`);
  const cases = readFileSync(report, 'utf8').split('<testcase ').slice(1);
  const toName = (each: string) => {
    const [, place = ''] = /classname="([^"]*)"/.exec(each) ?? [];
    const [, name = ''] = / name="([^"]*)"/.exec(each) ?? [];
    return `${place.split('.').slice(2).join('.')}.${name}`;
  };
  const failed = cases.filter((each) => /<failure|<error|type="pytest.xfail"/.test(each)).map(toName);
  const skipped = cases.filter((each) => each.includes('type="pytest.skip"')).length;
  return { passed: cases.length - failed.length - skipped, failed, output };
}

const OPTIONS = { timeout: 15 * MINUTE };

test.for(SUITES)('the suite of A2A $name passes, but for the listed exceptions', OPTIONS, async (suite, { skip }) => {
  const { name, copy, toArgs } = suite;
  if (copy === '') {
    console.log(`skipped: no copy of the suite of A2A ${name}`);
    skip('no copy');
  }
  const path = fileURLToPath(new URL(`exceptions-a2a-${name}.yaml`, import.meta.url));
  const listed = Object.values(parse(readFileSync(path, 'utf8')) as Record<string, string[]>).flat();
  const { passed, failed, output } = await run(copy, toArgs(await startUnderTest()));
  console.log(`A2A ${name}: ${passed} passed, ${failed.length} failed, ${listed.length} of them listed`);
  if (failed.toSorted().join() !== listed.toSorted().join()) console.log(output);
  expect(failed.toSorted()).toEqual(listed.toSorted());
});
