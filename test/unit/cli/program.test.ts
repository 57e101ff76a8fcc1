import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { expect, test, vi } from 'vitest';
import { findExample, toExample } from '../../../src/cli/start.ts';
import { createProgram, runProgram } from '../../../src/cli/program.ts';
import type { HostedAgent } from '../../../src/conversation/apps/hosted-agent.ts';

/** The command line without a service: help, refusals, completion, and what the start proposes. */

const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const list = (command: Command): Command[] => [command, ...command.commands.flatMap(list)];

/** Runs a command line in this process. */
async function run(...args: string[]) {
  const said: string[] = [];
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => said.push(String(text)) > 0),
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0),
    ...(['log', 'error'] as const).map((name) =>
      vi.spyOn(console, name).mockImplementation((text) => void said.push(`${text}\n`)),
    ),
  ];
  const code = await runProgram(args).finally(() => spies.forEach((spy) => spy.mockRestore()));
  return { code, said: said.join('') };
}

test('the help of every command ends with an example of it, whose options there are', () => {
  for (const command of list(createProgram(() => undefined))) {
    let help = '';
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    const [, example = ''] = /\nExample:\n {2}\$ (.+)\n/.exec(help) ?? [];
    const [, words = ''] = /(?:^|\()?(?:\w+=\S+ )*agent-runtime ([^|>)]*)/.exec(example) ?? [];
    const named = list(createProgram(() => undefined)).findLast((each) => {
      const path = each.parent?.parent ? `${each.parent.name()} ${each.name()}` : each.name();
      return ` ${words} `.includes(` ${path} `);
    });
    const known = [
      ...(named?.options ?? []),
      ...(named?.parent?.options ?? []),
      ...createProgram(() => undefined).options,
    ];
    const flags = words.match(/--[\w-]+/g) ?? [];
    expect([example, flags.filter((flag) => !known.some(({ long }) => long === flag) && flag !== '--help')]).toEqual([
      expect.stringContaining('agent-runtime '),
      [],
    ]);
    const family = [command.name(), ...command.commands.map((each) => each.name())];
    if (command.parent) expect(family.some((name) => words.includes(name))).toBe(true);
  }
});

test('the help of a command shows the options that all have', async () => {
  const { said } = await run('eval', 'run', '--help');
  expect(said).toMatch(/Global Options:\n +--url [^]*--app [^]*--user [^]*--json /);
});

test('what needs no service takes only the options that mean something to it', async () => {
  expect((await run('start', '--help')).said).not.toMatch(/Global Options|--app|--user|--url/);
  expect((await run('doctor', '--help')).said).toMatch(/Global Options:\n +--json [^\n]*\n\n/);
  expect(await run('init', '--app', 'weather')).toEqual({
    code: 2,
    said: 'error: init takes no --app\n--help says what there is.\n',
  });
  expect(await run('--user', 'ann', 'start')).toMatchObject({ code: 2 });
});

test('no command takes an option that it does not have', async () => {
  const commands = list(createProgram(() => undefined)).filter(({ commands: below }) => below.length === 0);
  const wrong: string[] = [];
  for (const command of commands) {
    const path = [command.parent?.parent ? [command.parent.name()] : [], command.name()].flat();
    const given = command.registeredArguments.map(() => 'x');
    const { code, said } = await run(...path, ...given, '--dryrn');
    if (code !== 2 || !said.includes("unknown option '--dryrn'")) wrong.push(`${path.join(' ')}: ${code} ${said}`);
  }
  expect(wrong).toEqual([]);
  const { code, said } = await run('users', 'erase', 'u1', '--dryrun');
  expect([code, said]).toEqual([2, expect.stringContaining('Did you mean --dry-run?')]);
  expect(await run('users', 'erase', 'u1', 'u2')).toMatchObject({ code: 2 });
});

test.each([
  [['bogus'], 'There is no command bogus.\n--help says what there is.\n'],
  [['strat'], 'There is no command strat.\n(Did you mean start?)\n--help says what there is.\n'],
  [['--url', 'nourl', 'sessions', 'list'], expect.stringMatching(/'nourl' is invalid. It begins with http:\/\/ or /)],
  [['init', MAIN], `${MAIN} is a file; name a directory.\n`],
  [['eval', 'run', 's', '--config', '/nowhere'], expect.stringContaining('/nowhere')],
])('%j is refused in a sentence', async (args, said) => {
  const answer = await run(...args);
  expect(answer).toEqual({ code: 2, said });
  expect(answer.said).not.toContain('    at ');
});

test('bash completes commands and options', async () => {
  const { said } = await run('completion', 'bash');
  const complete = (...words: string[]) => {
    const typed = ['agent-runtime', ...words].map((word) => `'${word}'`).join(' ');
    const ask = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _agent_runtime; echo "\${COMPREPLY[@]}"`;
    return spawnSync('bash', ['-c', `${said}\n${ask}`], { encoding: 'utf8' }).stdout.trim();
  };
  expect(complete('sess')).toBe('sessions');
  expect(complete('sessions', '')).toContain('list show export fork diff label');
  expect(complete('sessions', 'fork', 's1', '--a')).toBe('--at --app');
  expect((await run('completion', 'zsh')).said).toContain('compdef _agent_runtime agent-runtime');
  const { said: fish } = await run('completion', 'fish');
  expect(fish).toContain("complete -c agent-runtime -n '__fish_seen_subcommand_from sessions");
  expect(
    fish
      .trimEnd()
      .split('\n')
      .every((line) => line.startsWith('complete -c agent-runtime ')),
  ).toBe(true);
});

test('a Node that is too old is named, not a syntax error', () => {
  const old = 'data:text/javascript,Object.defineProperty(process.versions,"node",{value:"20.20.2"})';
  const { status, stderr } = spawnSync(process.execPath, ['--import', old, MAIN, 'start'], { encoding: 'utf8' });
  const { engines } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as {
    engines: { node: string };
  };
  const needed = engines.node.replace('>=', '');
  expect([status, stderr]).toEqual([
    2,
    `This is Node 20.20.2; the agent runtime needs ${needed} or newer. A clone has one in its node_modules/.bin.\n`,
  ]);
});

const hosted = (...tools: [name: string, parameters: object][]) =>
  ({
    describe: () => ({ tools: tools.map(([name, parameters]) => ({ name, parameters })) }),
  }) as unknown as HostedAgent;

test('the start proposes the first tool of an own application, else the calculator', () => {
  const schema = { type: 'object', properties: { city: { enum: ['Lima'] } }, required: ['city'] };
  const builtIn = hosted(['calculator', {}]);
  expect(findExample(new Map([['harness_agent', builtIn]])).prompt).toContain('calculator');
  const own = hosted(['calculator', {}], ['forecast', schema]);
  expect(
    findExample(
      new Map([
        ['harness_agent', builtIn],
        ['weather', own],
      ]),
    ),
  ).toEqual({
    app: 'weather',
    prompt: 'forecast {"city":"Lima"}',
  });
});

test('an example fits its schema', () => {
  const properties = {
    text: { type: 'string', minLength: 5 },
    city: { type: 'string' },
    count: { type: 'integer', minimum: 3 },
    share: { type: 'number' },
    is: { type: 'boolean' },
    list: { type: 'array', items: { type: 'string' }, minItems: 2 },
    either: { anyOf: [{ type: 'string', maxLength: 1 }, { type: 'null' }] },
    inner: { type: 'object', properties: { unit: { default: 'kg' }, more: {} }, required: ['unit'] },
    more: { type: 'string' },
  };
  expect(toExample({ type: 'object', properties, required: Object.keys(properties).slice(0, -1) })).toEqual({
    text: 'text.',
    city: 'city',
    count: 3,
    share: 1,
    is: true,
    list: ['list', 'list'],
    either: 'e',
    inner: { unit: 'kg' },
  });
});
