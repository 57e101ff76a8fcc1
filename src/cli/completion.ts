import type { Command } from 'commander';

/** Returns a command's full name, such as `sessions list`, without the name of the program. */
const toPath = (command: Command): string =>
  command.parent ? `${toPath(command.parent)} ${command.name()}`.trim() : '';

/** A command with all commands below it. */
const withSubcommands = (command: Command): Command[] => [command, ...command.commands.flatMap(withSubcommands)];

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
