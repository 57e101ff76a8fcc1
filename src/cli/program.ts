import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { AppError } from '../core/errors.ts';
import { HARNESS_APP } from '../core/names.ts';
import { DEFAULT_USER } from './api.ts';
import { finishCommands } from './command-help.ts';
import { CommandError, toShown } from './output.ts';
import { VERSION } from '../platform/version.ts';
import { addServiceCommands } from './service-commands.ts';
import { addArtifactCommands, addSessionCommands, addUserCommands } from './session-commands.ts';
import { addCronCommands, addEvalCommands, addPastCommands, addTaskCommands } from './work-commands.ts';

/** Exit code for an invalid command line, and for a command that could not start. */
const USAGE_EXIT_CODE = 2;

const SETTINGS = `
Settings are environment variables, or lines of a file .env; docs/configuration.md lists them. Commands that need a
service take the one of --url, else one that answers on this machine, else they run their own as long as they take.
The key for --url stands in AGENT_RUNTIME_KEY. NO_COLOR switches colours off.
`;

const endOnError = (error: NodeJS.ErrnoException) => process.exit(Number(error.code !== 'EPIPE'));

/**
 * Runs one command line. Each command imports its modules on demand, so that `start` loads only the service.
 * @returns the exit code: 0 success, 1 failure, 2 a wrong command line, or the command could not start
 */
export async function runProgram(args: string[]): Promise<number> {
  const exit = { code: 0 };
  const isService = ['start', 'dev'].includes(args[0] ?? 'start');
  // Standard output that closes early, as by `head`, is no failure. The service keeps running without its logs.
  if (!isService) process.stdout.off('error', endOnError).once('error', endOnError);
  const program = createProgram((code) => (exit.code = code));
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

/** Defines all commands. @param end is called with the exit code by commands that return one */
export function createProgram(end: (code: number) => void): Command {
  const program = new Command('agent-runtime')
    .description('An HTTP service that hosts an agent and keeps its sessions in PostgreSQL.')
    .version(VERSION)
    .addOption(new Option('--url <url>', 'the service to talk to').env('AGENT_RUNTIME_URL').argParser(toUrl))
    .addOption(new Option('--app <name>', 'application').default(HARNESS_APP))
    .addOption(new Option('--user <id>', 'user').default(DEFAULT_USER))
    .option('--json', 'print JSON, one document, or one a line where it streams')
    .addHelpText('after', SETTINGS)
    .showHelpAfterError('--help says what there is.')
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: unknown command '(.*)'/, 'There is no command $1.')),
    });
  addServiceCommands(program, end);
  addSessionCommands(program, end);
  addArtifactCommands(program);
  addEvalCommands(program, end);
  addCronCommands(program);
  addTaskCommands(program);
  addPastCommands(program, end);
  addUserCommands(program);
  finishCommands(program);
  return program;
}
