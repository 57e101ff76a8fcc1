import type { Command } from 'commander';

/** Examples by the command's full name. A command with subcommands shows the example of its first subcommand. */
const EXAMPLES: Record<string, string> = {
  '': 'agent-runtime --url https://agents.example.com sessions list --json | jq .',
  start: 'PORT=8080 agent-runtime start',
  dev: 'agent-runtime dev --no-open',
  migrate: 'DATABASE_URL=postgres://agents@db/agents agent-runtime migrate --check',
  check: 'HARNESS_FILE=harness.yaml agent-runtime check',
  doctor: 'agent-runtime doctor --json',
  openapi: 'agent-runtime openapi > openapi.json',
  mcp: 'agent-runtime --url http://127.0.0.1:8000 mcp',
  init: 'agent-runtime init my-agent',
  completion: 'source <(agent-runtime completion bash)',
  'keys create': 'agent-runtime keys create --scopes invoke,read --users ann --expires 2030-01-01T00:00:00Z',
  chat: 'agent-runtime chat --user ann --session s1',
  invoke: 'agent-runtime invoke "What is 17 * 23? Use the calculator."',
  'sessions list': 'agent-runtime sessions list --label env=prod --text refund --limit 10',
  'sessions show': 'agent-runtime sessions show s1 --at 4',
  'sessions export': 'agent-runtime sessions export > sessions.jsonl',
  'sessions fork': 'agent-runtime sessions fork s1 --at 4 --id s2',
  'sessions diff': 'agent-runtime sessions diff s1 s2',
  'sessions label': 'agent-runtime sessions label s1 env=prod --remove draft',
  'artifacts list': 'agent-runtime artifacts list s1',
  'artifacts get': 'agent-runtime artifacts get s1 report.pdf --version 0 > report.pdf',
  'artifacts put': 'agent-runtime artifacts put s1 report.pdf --type application/pdf',
  'eval run': 'agent-runtime eval run smoke --trials 5 --junit report.xml',
  'eval add': 'agent-runtime eval add smoke --label env=prod --error --limit 20',
  'eval export': 'agent-runtime eval export smoke --out smoke.evalset.json',
  'eval list': 'agent-runtime eval list smoke',
  'eval compare': 'agent-runtime eval compare 0b7f… 91c2…',
  'cron list': 'agent-runtime cron list --all',
  'cron run': 'agent-runtime cron run 7d0c…',
  'tasks list': 'agent-runtime tasks list --all',
  'tasks watch': 'agent-runtime tasks watch --all',
  'tasks answer': 'agent-runtime tasks answer 0b7f… --by ann',
  replay: 'agent-runtime replay --since 7d --sample 200 --junit replay.xml',
  import: 'agent-runtime import sessions.sqlite --as weather --dry-run',
  retention: 'agent-runtime retention',
  'users list': 'agent-runtime users list --app weather',
  'users erase': 'agent-runtime users erase ann --dry-run',
  'users export': 'agent-runtime users export ann > ann.jsonl',
};

/** Returns a command's full name, such as `sessions list`, without the name of the program. */
const toPath = (command: Command): string =>
  command.parent ? `${toPath(command.parent)} ${command.name()}`.trim() : '';

const withSubcommands = (command: Command): Command[] => [command, ...command.commands.flatMap(withSubcommands)];

/** Makes every command throw instead of ending the process, and adds the example to its help. */
export function finishCommands(program: Command): void {
  for (const command of withSubcommands(program)) {
    command.exitOverride();
    const example = EXAMPLES[toPath(command.parent ? (command.commands[0] ?? command) : command)];
    if (example !== undefined) command.addHelpText('after', `\nExample:\n  $ ${example}`);
  }
}

/** Returns a completion script for fish, which completes by conditions on the words that are typed already. */
function toFish(program: Command): string {
  const quote = (text: string) => `'${text.replaceAll(/['\\\\]/g, '\\\\$&')}'`;
  const lines = withSubcommands(program).flatMap((command) => {
    const names = command.commands.map((each) => each.name());
    const seen = toPath(command).split(' ').filter(Boolean);
    const after = seen.map((name) => `__fish_seen_subcommand_from ${name}`);
    const before = names.length > 0 ? [`not __fish_seen_subcommand_from ${names.join(' ')}`] : [];
    const when = (all: string[]) => (all.length > 0 ? ` -n ${quote(all.join('; and '))}` : '');
    return [
      ...command.commands.map(
        (each) => `${when([...after, ...before])} -f -a ${each.name()} -d ${quote(each.description())}`,
      ),
      ...command.options.map(({ long, description }) => `${when(after)} -l ${long?.slice(2)} -d ${quote(description)}`),
    ];
  });
  return lines.map((line) => `complete -c agent-runtime${line}`).join('\n');
}

/** Per shell: the typed words, the statement that returns completions, the command that registers the function. */
const SHELLS = {
  bash: [`\${COMP_WORDS[*]:1}`, `COMPREPLY=($(compgen -W "$list" -- "\${COMP_WORDS[COMP_CWORD]}"))`, 'complete -F'],
  zsh: [`\${words[2,-1]}`, `compadd -- \${=list}`, 'compdef'],
} as const;

export function printCompletion(program: Command, shell: keyof typeof SHELLS | 'fish'): void {
  if (shell === 'fish') return console.log(toFish(program));
  const [typed, answer, register] = SHELLS[shell];
  const flags = ({ options }: Command) => options.flatMap(({ long }) => long ?? []);
  const cases = withSubcommands(program)
    .toReversed()
    .map((command) => {
      const words = [...command.commands.map((each) => each.name()), ...flags(command), ...flags(program), '--help'];
      const path = toPath(command);
      return `    ${path === '' ? '' : `'${path} '`}*) list='${[...new Set(words)].join(' ')}' ;;`;
    });
  const body = [`  local list`, `  case "${typed}" in`, ...cases, '  esac', `  ${answer}`];
  console.log(['_agent_runtime() {', ...body, '}', `${register} _agent_runtime agent-runtime`].join('\n'));
}
