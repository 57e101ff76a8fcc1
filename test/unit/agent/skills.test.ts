import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadSkills, skillsInstruction, skillTools } from '../../../src/agent/skills.ts';
import { getFunctionResponses } from '../../../src/core/content.ts';
import { agent, runInput, runToEnd } from '../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../support/scripted-model.ts';

let root = '';
let skillsDir = '';

async function put(path: string, content: string | Buffer) {
  const file = join(skillsDir, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, content);
}
const skillMd = (name: string, body = 'Do it.', description = `Does ${name}`) =>
  `---\nname: ${name}\ndescription: ${description}\n---\n\n${body}\n`;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'skills-'));
  skillsDir = join(root, 'skills');
  await mkdir(skillsDir);
  await writeFile(join(root, 'secret.txt'), 'canary');
  await put('reports/SKILL.md', skillMd('reports', 'Write a report.\n\n---\nend'));
  await put('reports/references/style.md', 'Be brief.');
  await put('reports/logo.bin', Buffer.from([0xff, 0xfe, 0x00]));
  await put('reports/huge.txt', 'x'.repeat(103_000));
  await put('reports/.hidden', 'canary');
  await put('other/SKILL.md', skillMd('other'));
  await put('renamed/SKILL.md', skillMd('something-else'));
  await put('escape/SKILL.md', skillMd('../../tmp/x'));
  await put('bare/SKILL.md', 'no front matter');
  await put('broken/SKILL.md', '---\nname: [\n---\n');
  await put('wordless/SKILL.md', '---\nname: wordless\n---\n');
  await put('bomb/SKILL.md', '---\na: &a [x]\nname: *a\ndescription: *a\n---\n');
  await put('unfinished/readme.md', 'no SKILL.md');
  await put('big/SKILL.md', skillMd('big', 'x'.repeat(103_000)));
  await symlink(join(root, 'secret.txt'), join(skillsDir, 'reports/link.txt'));
  await symlink(root, join(skillsDir, 'reports/up'));
  await symlink(join(skillsDir, 'reports'), join(skillsDir, 'linked'));
  await mkdir(join(skillsDir, 'linkmd'));
  await symlink(join(root, 'secret.txt'), join(skillsDir, 'linkmd/SKILL.md'));
});
afterAll(() => rm(root, { recursive: true }));

async function use(calls: [string, Record<string, unknown>][]) {
  const tools = skillTools(await loadSkills(skillsDir, ['reports', 'other']));
  const model = scriptedModel([calls.map(([name, args], index) => callPart(name, args, `${index}`)), [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools }) }));
  return getFunctionResponses(events[1]?.content).map(({ response }) => response);
}

test('the instruction lists names and descriptions, and nothing of the bodies', async () => {
  const instruction = skillsInstruction(await loadSkills(skillsDir, ['reports', 'other', 'reports']));
  expect(instruction).toContain('- reports: Does reports\n- other: Does other');
  expect(instruction).not.toContain('Write a report');
  expect(skillsInstruction([])).toBe('');
  expect(skillTools([])).toEqual([]);
});

test('a body on demand, with the names of its resources; hidden files and links are not among them', async () => {
  expect(await use([['load_skill', { name: 'reports' }]])).toEqual([
    {
      name: 'reports',
      instructions: 'Write a report.\n\n---\nend',
      resources: ['huge.txt', 'logo.bin', 'references/style.md'],
    },
  ]);
});

test('one resource: text as it is, bytes as base64, not more than 100 KB', async () => {
  const load = (path: string): [string, Record<string, unknown>] => ['load_skill_resource', { name: 'reports', path }];
  expect(await use([load('references/style.md'), load('logo.bin'), load('huge.txt'), load('none.txt')])).toEqual([
    { path: 'references/style.md', text: 'Be brief.' },
    { path: 'logo.bin', base64: '//4A' },
    { error: 'huge.txt is larger than 102400 bytes' },
    { error: 'there is no such file' },
  ]);
});

test.each([
  '../other/SKILL.md',
  '../../secret.txt',
  'references/../../other/SKILL.md',
  './references/style.md',
  '/etc/passwd',
  '//etc/passwd',
  'references//style.md',
  'references\\..\\..\\secret.txt',
  'C:\\secret.txt',
  'link.txt',
  'up/secret.txt',
  'up',
  'references',
  'references/style.md/',
  'references/style.md\0.txt',
  '%2e%2e/%2e%2e/secret.txt',
])('%j is not read', async (path) => {
  const responses = await use([['load_skill_resource', { name: 'reports', path }]]);
  expect(responses).toEqual([{ error: expect.any(String) }]);
  expect(JSON.stringify(responses)).not.toContain('canary');
});

test('a skill that the agent does not have is not loaded', async () => {
  const [response] = await use([['load_skill', { name: 'big' }]]);
  expect(response?.['error']).toContain('`/name` must be equal to one of the allowed values');
});

test.each([
  ['none', 'there is no such file'],
  ['../reports', 'its name is not valid'],
  ['/tmp/x', 'its name is not valid'],
  ['Reports', 'its name is not valid'],
  ['', 'its name is not valid'],
  ['x'.repeat(65), 'its name is not valid'],
])('skill %j fails to load: %s', async (name, reason) => {
  await expect(loadSkills(skillsDir, [name])).rejects.toMatchObject({
    code: 'unknown_skill',
    message: `Skill \`${name}\` failed to load: ${reason}`,
  });
});

test.each([
  ['renamed', 'its SKILL.md names it `something-else`'],
  ['escape', 'its SKILL.md names it `../../tmp/x`'],
  ['bare', 'its SKILL.md has no front matter'],
  ['broken', 'its SKILL.md needs a valid description'],
  ['wordless', 'its SKILL.md needs a valid description'],
  ['bomb', 'its SKILL.md names it `*a`'],
  ['unfinished', 'there is no such file'],
  ['big', 'SKILL.md is larger than 102400 bytes'],
  ['linked', 'links are not followed'],
  ['linkmd', 'links are not followed'],
])('skill %j is left out with a warning, and the others are there: %s', async (name, reason) => {
  const told: string[] = [];
  const skills = await loadSkills(skillsDir, [name, 'other'], (text) => void told.push(text));
  expect(skills.map((skill) => skill.name)).toEqual(['other']);
  expect(told).toEqual([`Skill \`${name}\` is left out: ${reason}.`]);
});

test.each([
  ['a colon in it', 'description: Use when: the user asks.', 'Use when: the user asks.'],
  ['quotes and a colon', 'description: "Use: this" always: yes', '"Use: this" always: yes'],
  ['more lines', 'description: Use when: the user\n  asks for it\nlicense: MIT', 'Use when: the user asks for it'],
  ['a folded text', 'description: >-\n  Use when\n  asked.\nother: [', 'Use when asked.'],
  ['a tab', 'description:\tTabs: here', 'Tabs: here'],
  ['more characters than the format has', `description: ${'x'.repeat(2_000)}`, 'x'.repeat(1_024)],
])('a description with %s is read', async (_, front, description) => {
  await put('odd/SKILL.md', `---\nname: odd\n${front}\n---\nDo it.\n`);
  expect(await loadSkills(skillsDir, ['odd'])).toMatchObject([{ name: 'odd', description, body: 'Do it.' }]);
});

test('a SKILL.md without a name has that of its directory', async () => {
  await put('unnamed/SKILL.md', '---\r\ndescription: Does it.\r\n---\r\nDo it.\r\n');
  expect(await loadSkills(skillsDir, ['unnamed'])).toMatchObject([{ name: 'unnamed', description: 'Does it.' }]);
});

test('without a directory there are no skills', async () => {
  await expect(loadSkills(undefined, ['a'])).rejects.toThrow(
    'Skill `a` failed to load: no skills directory is configured: set SKILLS_DIR to the directory that has',
  );
  await expect(loadSkills(join(root, 'nowhere'), ['a'])).rejects.toThrow(
    'Skill `a` failed to load: the skills directory does not exist',
  );
});
