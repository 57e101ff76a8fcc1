import { Argument, type Command, Option } from 'commander';
import { printCompletion } from './command-help.ts';

export function addServiceCommands(program: Command, end: (code: number) => void): void {
  program
    .command('start')
    .description('start the service, also without a command')
    // The command `dev` sets this option, so that a reload prints the changed file.
    .addOption(new Option('--changed <file>').hideHelp())
    .action(async ({ changed }: { changed?: string }) => (await import('./start.ts')).start(changed));
  program
    .command('dev')
    .description('start the service with the development UI; restart it when an agent or a setting changes')
    .option('--no-open', 'do not open the browser')
    .action(async ({ open }: { open: boolean }) => (await import('./dev.ts')).dev(open));
  program
    .command('migrate')
    .description('apply the migrations to DATABASE_URL and end')
    .option('--check', 'change nothing; end with 1 and what is missing where DATABASE_URL is not up to date')
    .action(async ({ check }: { check?: boolean }) =>
      (await import('./start.ts')).migrateOnly({ isCheck: check === true }),
    );
  program
    .command('check')
    .description('print the effective configuration of the agent and end')
    .action(async () => (await import('./start.ts')).check());
  program
    .command('doctor')
    .description(
      'say what is wrong with the settings, the database, the model and this machine; exit code 1 if anything',
    )
    .action(async (_options, command: Command) =>
      end(await (await import('./doctor/doctor.ts')).doctor(command.optsWithGlobals())),
    );
  program
    .command('openapi')
    .description('print the OpenAPI document with every operation and end')
    .action(async () => (await import('./start.ts')).printOpenApi());
  program
    .command('mcp')
    .description('hand MCP messages on standard input to the service, for clients that speak nothing else')
    .action(async (_options, command: Command) =>
      (await import('./mcp.ts')).bridgeMcp(command.optsWithGlobals(), command),
    );
  program
    .command('init')
    .description('make a new project: an agent with a tool, a test, a compose file')
    .argument('[directory]', 'where', '.')
    .action(async (directory: string) => (await import('./init.ts')).init(directory));
  program
    .command('completion')
    .description('print a script that completes commands and options')
    .addArgument(new Argument('<shell>').choices(['bash', 'zsh', 'fish']))
    .action((shell: 'bash' | 'zsh' | 'fish') => printCompletion(program, shell));
  addKeyCommands(program);
}

function addKeyCommands(program: Command): void {
  program
    .command('keys')
    .description('runtime keys')
    .command('create')
    .description('print a new runtime key and its line for RUNTIME_API_KEYS_FILE')
    .option('--scopes <list>', 'with commas [all that users have]')
    .option('--users <list>', 'users that the key acts for [all]')
    .option('--apps <list>', 'applications [all]')
    .option('--expires <time>', 'e.g. 2030-01-01T00:00:00Z [never]')
    .option('--id <name>', 'name of the key in logs')
    .action(async (_options, command: Command) => (await import('./keys.ts')).createKeys(command.optsWithGlobals()));
}
