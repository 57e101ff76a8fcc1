import { Command, CommanderError, Option } from 'commander';
import { AppError } from '../core/errors.ts';
import { HARNESS_APP } from '../core/names.ts';
import { CommandError, toShown } from './output.ts';
import { VERSION } from '../process/version.ts';
import { addServiceCommands } from './service-commands.ts';
import { addArtifactCommands, addSessionCommands, addUserCommands } from './session-commands.ts';
import { addPastCommands, addWorkCommands } from './work-commands.ts';

/** Exit code of an invalid command line, and of work that could not start. */
const USAGE_EXIT_CODE = 2;

const EXAMPLES = `
Examples:
  $ agent-runtime init my-agent                 a new project with an agent and a test
  $ agent-runtime dev                           the service with the development UI, restarted on every change
  $ agent-runtime chat                          a conversation in the terminal
  $ agent-runtime sessions list --json | jq .   everything that lists can be read by programs
  $ agent-runtime --url https://agents.example.com sessions show s1

Settings are environment variables, or lines of a file .env; docs/configuration.md lists them. Commands that need a
service take the one of --url, else one that answers on this machine, else they run their own as long as they take.
The key for --url stands in AGENT_RUNTIME_KEY. NO_COLOR switches colours off.
`;

/**
 * Runs one command line. Each command loads its code on demand, so that a start loads the service only.
 * @returns the exit code: 0 done, 1 it failed, 2 the command line is wrong or the work could not start
 */
export async function runProgram(args: string[]): Promise<number> {
  const exit = { code: 0 };
  const program = createProgram((code) => (exit.code = code));
  try {
    await program.parseAsync(args, { from: 'user' });
    return exit.code;
  } catch (error) {
    // Help and version end like this too; commander has printed its message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
    const isForPeople = error instanceof AppError || error instanceof CommandError;
    console.error(isForPeople ? toShown(error.message) : error);
    return error instanceof CommandError ? error.exitCode : 1;
  }
}

function createProgram(end: (code: number) => void): Command {
  const program = new Command('agent-runtime')
    .description('An HTTP service that hosts an agent and keeps its sessions in PostgreSQL.')
    .version(VERSION)
    .addOption(new Option('--url <url>', 'the service to talk to').env('AGENT_RUNTIME_URL'))
    .addOption(new Option('--app <name>', 'application').default(HARNESS_APP))
    .addOption(new Option('--user <id>', 'user').default('user'))
    .option('--json', 'print JSON, one document, or one a line where it streams')
    .addHelpText('after', EXAMPLES)
    .showHelpAfterError('--help says what there is.')
    .exitOverride();
  addServiceCommands(program, end);
  addSessionCommands(program, end);
  addArtifactCommands(program);
  addWorkCommands(program, end);
  addPastCommands(program, end);
  addUserCommands(program);
  for (const command of withSubcommands(program)) command.exitOverride();
  return program;
}

const withSubcommands = (command: Command): Command[] =>
  command.commands.flatMap((each) => [each, ...withSubcommands(each)]);
