import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { AppError } from '../core/errors.ts';
import { HARNESS_APP } from '../core/names.ts';
import { DEFAULT_USER } from './api.ts';
import { type CommandRow, toCommandRow } from './command-row.ts';
import { ALONE, COMMANDS, FAMILIES } from './commands.ts';
import { CommandError, EXIT_CODES, toShown } from './output.ts';
import { VERSION } from '../platform/version.ts';

/** Exit code for an invalid command line, and for a command that could not start. */
const USAGE_EXIT_CODE = 2;

const SETTINGS = `
Settings are environment variables, or lines of a file .env; docs/configuration.md lists them. Commands that need a
service take the one of --url, else one that answers on this machine, else they run their own as long as they take.
The key for --url stands in AGENT_RUNTIME_KEY. NO_COLOR switches colours off.

Exit codes:
${Object.entries(EXIT_CODES)
  .map(([code, meaning]) => `  ${code.padEnd(5)}${meaning}`)
  .join('\n')}
`;

const endOnError = (error: NodeJS.ErrnoException) => process.exit(Number(error.code !== 'EPIPE'));

/**
 * Runs one command line.
 * @returns the exit code: 0 success, 1 failure, 2 a wrong command line, or the command could not start
 */
export async function runProgram(args: string[]): Promise<number> {
  const exit = { code: 0 };
  const isService = ['start', 'dev'].includes(args[0] ?? 'start');
  // Standard output that closes early, as by `head`, is no failure. The service keeps running without its logs.
  if (!isService) process.stdout.off('error', endOnError).once('error', endOnError);
  const program = createProgram((code) => (exit.code = code), isService ? ALONE : COMMANDS);
  // Only there, because a command may have a `--version` of its own, which the program's would take from it.
  if (/^(?:-V|--version|-h|--help)$/.test(args[0] ?? '')) program.version(VERSION);
  try {
    await program.parseAsync(args.length === 0 ? ['start'] : args, { from: 'user' });
    return exit.code;
  } catch (error) {
    // commander also throws after `--help` and `--version`. It has printed its message already.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
    // The error of Node for a missing or unreadable file names the file.
    const isAboutFile = error instanceof Error && 'syscall' in error && 'path' in error;
    const isForPeople = error instanceof AppError || error instanceof CommandError || isAboutFile;
    console.error(isForPeople ? toShown(error.message) : error);
    if (isAboutFile) return USAGE_EXIT_CODE;
    return error instanceof CommandError ? error.exitCode : 1;
  }
}

function toUrl(text: string): string {
  if (/^https?:$/.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new InvalidArgumentError('It begins with http:// or https://.');
}

/** Defines commands. @param end is called with the exit code of the command that ran */
export function createProgram(end: (code: number) => void, rows = COMMANDS): Command {
  const program = new Command('agent-runtime')
    .description('An HTTP service that hosts an agent and keeps its sessions in PostgreSQL.')
    .addOption(new Option('--url <url>', 'the service to talk to').env('AGENT_RUNTIME_URL').argParser(toUrl))
    .addOption(new Option('--app <name>', 'application').default(HARNESS_APP))
    .addOption(new Option('--user <id>', 'user').default(DEFAULT_USER))
    .option('--json', 'print JSON, one document, or one a line where it streams')
    .addHelpText('after', SETTINGS)
    .showHelpAfterError('--help says what there is.')
    .configureHelp({ showGlobalOptions: true })
    // Commands below inherit this: an error is thrown instead of ending the process.
    .exitOverride()
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: unknown command '(.*)'/, 'There is no command $1.')),
    });
  addExample(program, 'agent-runtime --url https://agents.example.com sessions list --json | jq .');
  for (const row of rows.flatMap(toCommandRow)) addCommand(program, row, end);
  return program;
}

function addCommand(program: Command, row: CommandRow, end: (code: number) => void): void {
  const [first = '', ...rest] = row.usage.split(' ');
  const about = FAMILIES[first];
  const [name = '', ...args] = about === undefined ? [first, ...rest] : rest;
  const parent = about === undefined ? program : getFamily(program, first, about, row.example);
  const command = parent.command(name).description(row.about);
  for (const [place, text] of args.entries()) {
    const { about: meaning, default: value, choices } = row.args?.[place] ?? {};
    const argument = new Argument(text, meaning);
    if (choices) argument.choices(choices);
    command.addArgument(value === undefined ? argument : argument.default(value));
  }
  for (const [flags, meaning, { default: value, choices, isHidden } = {}] of row.options ?? []) {
    const option = new Option(flags, meaning);
    if (choices) option.choices(choices);
    command.addOption((value === undefined ? option : option.default(value)).hideHelp(isHidden === true));
  }
  const { globals } = row;
  if (globals) {
    const visibleGlobalOptions = () => program.options.filter((option) => isAmong(globals, option));
    command.configureHelp({ showGlobalOptions: true, visibleGlobalOptions });
  }
  command.action(async (...given: unknown[]) => {
    const refused = program.options.find(
      (option) =>
        globals && !isAmong(globals, option) && program.getOptionValueSource(option.attributeName()) === 'cli',
    );
    if (refused) command.error(`error: ${row.usage.replace(/ [<[].*/, '')} takes no ${refused.long}`);
    const code = await row.run(command, ...(given.slice(0, args.length) as never[]));
    if (typeof code === 'number') end(code);
  });
  if (row.more !== undefined) command.addHelpText('after', `\n${row.more}`);
  addExample(command, row.example);
}

const isAmong = (globals: readonly string[], option: Option) => globals.includes(option.attributeName());

/** The command that has the commands of a family below it. Its example is that of the first. */
function getFamily(program: Command, name: string, about: string, example: string): Command {
  const known = program.commands.find((each) => each.name() === name);
  if (known) return known;
  const family = program.command(name).description(about);
  addExample(family, example);
  return family;
}

function addExample(command: Command, example: string): void {
  command.addHelpText('after', `\nExample:\n  $ ${example}`);
}
