import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createConfig, lint } from '@redocly/openapi-core';
import { generateSource } from 'oazapfts';
import { RE2JS } from 're2js';
import { describe, expect, onTestFinished, test } from 'vitest';
import { writtenOut } from '../support/document.ts';
import { MINUTE } from '../support/patience.ts';

/** Programs of others that take the published document. */
const path = fileURLToPath(new URL('../../src/platform/http/openapi/openapi.json', import.meta.url));
const root = fileURLToPath(new URL('../../', import.meta.url));
const document = writtenOut(JSON.parse(await readFile(path, 'utf8')) as Document);

interface Document {
  paths: Record<string, Record<string, Documented>>;
}

interface Documented {
  description?: string;
  parameters?: Parameter[];
  requestBody?: { content: object };
  responses?: object;
}

interface Parameter {
  name: string;
  in: string;
  required: boolean;
  schema: { default?: unknown; pattern?: string; enum?: string[] };
}

function* patternsOf(value: unknown): Generator<string> {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, member] of Object.entries(value)) {
    if (key === 'pattern' && typeof member === 'string') yield member;
    else yield* patternsOf(member);
  }
}

describe('patterns', () => {
  const patterns = [...new Set(patternsOf(document))];
  const texts = [
    '',
    'a',
    'a b',
    'a/b',
    '0',
    '007',
    '1234567890',
    'ü',
    '𝕏',
    'a\nb',
    'a\u0000',
    'a\u007f',
    'é'.repeat(300),
  ];

  test.each(patterns)('RE2 reads %s as JavaScript does', (pattern) => {
    const re2 = RE2JS.compile(pattern);
    const own = new RegExp(pattern, 'u');
    const matches = (isMatch: (text: string) => boolean) => texts.filter(isMatch);
    expect(matches((text) => re2.matcher(text).find())).toEqual(matches((text) => own.test(text)));
  });

  test('there are some, and RE2 refuses what JavaScript alone can read', () => {
    expect(patterns.length).toBeGreaterThan(2);
    expect(() => RE2JS.compile(String.raw`^[^\ud800-\udfff]$`)).toThrow('invalid escape sequence');
  });
});

test('a generator makes a client of it that compiles', { timeout: 2 * MINUTE }, async () => {
  const cache = join(root, 'node_modules', '.cache');
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'generated-client-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'client.ts'), await generateSource(path));
  const options =
    '--ignoreConfig --strict --noEmit --skipLibCheck --target es2024 --module nodenext --lib es2024,dom'.split(' ');
  const compile = promisify(execFile)(join(root, 'node_modules', '.bin', 'tsc'), [
    ...options,
    join(folder, 'client.ts'),
  ]);
  await expect(compile).resolves.toMatchObject({ stdout: '' });
  const client = await readFile(join(folder, 'client.ts'), 'utf8');
  for (const name of ['listSessions', 'harnessRuntimeGetArtifactMetadata', 'harnessInvoke', 'runAgentSse']) {
    expect(client).toContain(`export function ${name}(`);
  }
});

test('a linter has nothing to say', { timeout: MINUTE }, async () => {
  const config = await createConfig({
    extends: ['recommended-strict'],
    rules: {
      // Whether the service lives cannot be asked wrongly.
      'operation-4xx-response': 'off',
      // The rule's own default is that examples may have no members beside those that a schema names.
      'no-invalid-media-type-examples': { severity: 'error', allowAdditionalProperties: true },
    },
  });
  const problems = await lint({ ref: path, config });
  expect(problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer])).toEqual([]);
});

describe('what clients have to know is declared', () => {
  const parameters = Object.values(document.paths)
    .flatMap((item) => Object.values(item))
    .flatMap((operation) => operation.parameters ?? []);
  const parametersOf = (template: string, method: string) => document.paths[template]?.[method]?.parameters ?? [];
  const find = (template: string, method: string, name: string) =>
    parametersOf(template, method).find((parameter) => parameter.name === name);

  test('a parameter with a default may be left out', () => {
    const defaulted = parameters.filter(({ schema }) => schema.default !== undefined);
    expect(defaulted.length).toBeGreaterThan(5);
    expect(defaulted.filter(({ required }) => required)).toEqual([]);
  });

  test('text in a path has no control characters', () => {
    const texts = parameters.filter((parameter) => parameter.in === 'path' && 'maxLength' in parameter.schema);
    expect(texts.filter(({ schema }) => new RegExp(schema.pattern ?? '', 'u').test('a\u0001')).length).toBe(0);
  });

  test('the words that a memory is searched for are required', () => {
    expect(find('/apps/{app_name}/users/{user_id}/memory', 'get', 'query')?.required).toBe(true);
  });

  test('/run_live: modalities may be repeated, the answer is an upgrade, and without one 426', () => {
    const { parameters: declared, responses, description } = document.paths['/run_live']?.['get'] ?? {};
    expect(declared?.map(({ name, required }) => [name, required])).toEqual([
      ['app_name', false],
      ['user_id', true],
      ['session_id', true],
      ['modalities', false],
      ['proactive_audio', false],
      ['enable_affective_dialog', false],
      ['save_live_blob', false],
      ['enable_session_resumption', false],
      ['explicit_vad_signal', false],
    ]);
    expect(find('/run_live', 'get', 'modalities')?.schema).toEqual({
      type: 'array',
      maxItems: 128,
      items: { type: 'string', enum: ['TEXT', 'AUDIO', 'VIDEO'] },
    });
    expect(Object.keys(responses ?? {})).toEqual(['101', '401', '403', '422', '426', '429', '503', 'default']);
    for (const word of ['activity_start', 'blob', 'content', 'turnComplete', '1011'])
      expect(description).toContain(word);
  });

  test('the header of the telemetry choice, the bodies of /invoke', () => {
    expect(find('/config/telemetry', 'post', 'x-adk-telemetry-request')?.schema.enum).toEqual(['true']);
    const { content } = document.paths['/invoke']?.['post']?.requestBody ?? {};
    expect(Object.keys(content ?? {})).toEqual(['text/plain', 'application/json']);
  });
});
