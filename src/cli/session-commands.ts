import type { Command } from 'commander';

/** @param end is called with the exit code of `sessions diff` */
export function addSessionCommands(program: Command, end: (code: number) => void): void {
  program
    .command('chat')
    .description('a conversation in the terminal; Ctrl-C cancels what runs')
    .option('--session <id>', 'resume a session, or choose the id of a new one')
    .action(async (_options, command: Command) => (await import('./chat.ts')).chat(command.optsWithGlobals()));
  program
    .command('invoke <message...>')
    .description('send one message and print the answer')
    .option('--session <id>', 'the session to say it in [a new one]')
    .action(async (words: string[], _options, command: Command) =>
      (await import('./chat.ts')).invoke(words, command.optsWithGlobals()),
    );
  addSessionsCommands(program.command('sessions').description('the sessions of --user with --app'), end);
}

function addSessionsCommands(sessions: Command, end: (code: number) => void): void {
  sessions
    .command('list')
    .description('the newest first')
    .option('--limit <n>', 'maximum number', '50')
    .option('--label <name=value...>', 'only those with these labels; a name alone: whatever its value')
    .option('--text <words>', 'only those whose first text has this in it')
    .option('--sort <time>', 'updated or created')
    .option('--order <order>', 'desc, the newest first, or asc')
    .action(async (_options, command: Command) =>
      (await import('./sessions.ts')).listSessions(command.optsWithGlobals()),
    );
  sessions
    .command('show <id>')
    .description('the conversation')
    .option('--at <n>', 'as it was after this event')
    .action(async (id: string, _options, command: Command) =>
      (await import('./sessions.ts')).showSession(id, command.optsWithGlobals()),
    );
  sessions
    .command('export')
    .description('sessions with their events as JSON Lines, on the output')
    .argument('[id...]', 'all where none is named')
    .action(async (ids: string[], _options, command: Command) =>
      (await import('./sessions.ts')).exportSessions(ids, command.optsWithGlobals()),
    );
  addChangesOfSessions(sessions, end);
}

function addChangesOfSessions(sessions: Command, end: (code: number) => void): void {
  sessions
    .command('fork <id>')
    .description('a new session with the first events of this one, the state and the artifacts of then')
    .option('--at <n>', 'number of events [all]')
    .option('--id <id>', 'id of the new session')
    .option('--label <name=value...>', 'its labels')
    .action(async (id: string, _options, command: Command) =>
      (await import('./session-data.ts')).forkSession(id, command.optsWithGlobals()),
    );
  sessions
    .command('diff <id> <other>')
    .description('how two sessions differ; exit code 0 they do not, 1 they do')
    .option('--at <n>', 'the first as it was after this event')
    .option('--other-at <n>', 'the other as it was after this event')
    .action(async (id: string, other: string, _options, command: Command) => {
      const { diffSessions } = await import('./session-data.ts');
      end(await diffSessions(id, other, command.optsWithGlobals()));
    });
  sessions
    .command('label <id> [name=value...]')
    .description('set labels, name=value, and print all')
    .option('--remove <name...>', 'labels to remove')
    .action(async (id: string, labels: string[], _options, command: Command) =>
      (await import('./session-data.ts')).labelSession(id, labels, command.optsWithGlobals()),
    );
}

export function addArtifactCommands(program: Command): void {
  const artifacts = program.command('artifacts').description('the artifacts of a session');
  artifacts
    .command('list <session>')
    .action(async (session: string, _options, command: Command) =>
      (await import('./artifacts.ts')).listArtifacts(session, command.optsWithGlobals()),
    );
  artifacts
    .command('get <session> <name>')
    .description('the bytes of an artifact, on the output')
    .option('--version <n>', 'from 0 [the latest]')
    .action(async (session: string, name: string, _options, command: Command) =>
      (await import('./artifacts.ts')).getArtifact(session, name, command.optsWithGlobals()),
    );
  artifacts
    .command('put <session> <file>')
    .description('save a file as the next version')
    .option('--name <name>', 'name of the artifact [that of the file]')
    .option('--type <mime>', 'media type', 'application/octet-stream')
    .action(async (session: string, file: string, _options, command: Command) =>
      (await import('./artifacts.ts')).putArtifact(session, file, command.optsWithGlobals()),
    );
}

export function addUserCommands(program: Command): void {
  program
    .command('retention')
    .description('what the settings of retention would delete now; a dry run, the service deletes by itself')
    .option('--dry-run', 'the only thing that it does')
    .action(async (_options, command: Command) =>
      (await import('./users.ts')).showRetention(command.optsWithGlobals()),
    );
  const users = program.command('users').description('the users of --app, and all data of one');
  users
    .command('list')
    .description('those of whom --app holds anything')
    .action(async (_options, command: Command) => (await import('./users.ts')).listUsers(command.optsWithGlobals()));
  users
    .command('erase <user>')
    .description('delete all that --app holds of a user, and print how much it was; can be run again')
    .option('--all-apps', 'of every application that holds something')
    .option('--dry-run', 'count and change nothing')
    .action(async (user: string, _options, command: Command) =>
      (await import('./users.ts')).eraseUser(user, command.optsWithGlobals()),
    );
  users
    .command('export <user>')
    .description('all that --app holds of a user as JSON Lines, on the output; `import` takes them')
    .action(async (user: string, _options, command: Command) =>
      (await import('./users.ts')).exportUser(user, command.optsWithGlobals()),
    );
}
