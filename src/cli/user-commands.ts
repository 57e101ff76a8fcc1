import type { Command } from 'commander';
import type { UserOptions } from './users.ts';

/** The commands for all data of one user. */
export function addUserCommands(program: Command): void {
  program
    .command('retention')
    .description('what the settings of retention would delete now; a dry run, the service deletes by itself')
    .option('--dry-run', 'the only thing that it does')
    .action(async (_options, command: Command) =>
      (await import('./users.ts')).showRetention(command.optsWithGlobals<UserOptions>()),
    );
  const users = program.command('users').description('all data of one user');
  users
    .command('erase')
    .description('delete all that --app holds of a user, and print how much it was; can be run again')
    .argument('<user>')
    .option('--all-apps', 'of every application that holds something')
    .option('--dry-run', 'count and change nothing')
    .action(async (user: string, _options, command: Command) =>
      (await import('./users.ts')).eraseUser(user, command.optsWithGlobals<UserOptions>()),
    );
  users
    .command('export')
    .description('all that --app holds of a user as JSON Lines, on the output; `import` takes them')
    .argument('<user>')
    .action(async (user: string, _options, command: Command) =>
      (await import('./users.ts')).exportUser(user, command.optsWithGlobals<UserOptions>()),
    );
}
