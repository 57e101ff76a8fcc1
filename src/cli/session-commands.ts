import type { Command } from 'commander';
import type { GlobalOptions } from './api.ts';

const optionsOf = (command: Command) => command.optsWithGlobals<GlobalOptions>();

/** The commands that talk with the agent and look at what was said. */
export function addSessionCommands(program: Command): void {
  program
    .command('chat')
    .description('a conversation in the terminal; Ctrl-C cancels what runs')
    .option('--session <id>', 'resume a session, or choose the id of a new one')
    .action(async (_options, command: Command) => (await import('./chat.ts')).chat(optionsOf(command)));
  program
    .command('invoke')
    .description('send one message and print the answer')
    .argument('<message...>')
    .option('--session <id>', 'the session to say it in [a new one]')
    .action(async (words: string[], _options, command: Command) =>
      (await import('./chat.ts')).invoke(words, optionsOf(command)),
    );
  addSessionsCommands(program.command('sessions').description('the sessions of --user with --app'));
}

function addSessionsCommands(sessions: Command): void {
  sessions
    .command('list')
    .description('the newest first')
    .option('--limit <n>', 'maximum number', '50')
    .action(async (_options, command: Command) =>
      (await import('./sessions.ts')).listSessions(command.optsWithGlobals<GlobalOptions & { limit: string }>()),
    );
  sessions
    .command('show')
    .description('the conversation')
    .argument('<id>')
    .action(async (id: string, _options, command: Command) =>
      (await import('./sessions.ts')).showSession(id, optionsOf(command)),
    );
  sessions
    .command('export')
    .description('sessions with their events as JSON Lines, on the output')
    .argument('[id...]', 'all where none is named')
    .action(async (ids: string[], _options, command: Command) =>
      (await import('./sessions.ts')).exportSessions(ids, optionsOf(command)),
    );
}

/** The commands for the files of a session. */
export function addArtifactCommands(program: Command): void {
  const artifacts = program.command('artifacts').description('the artifacts of a session');
  artifacts
    .command('list')
    .argument('<session>')
    .action(async (session: string, _options, command: Command) =>
      (await import('./artifacts.ts')).listArtifacts(session, optionsOf(command)),
    );
  artifacts
    .command('get')
    .description('the bytes of an artifact, on the output')
    .argument('<session>')
    .argument('<name>')
    .option('--version <n>', 'from 0 [the latest]')
    .action(async (session: string, name: string, _options, command: Command) =>
      (await import('./artifacts.ts')).getArtifact(
        session,
        name,
        command.optsWithGlobals<GlobalOptions & { version?: string }>(),
      ),
    );
  artifacts
    .command('put')
    .description('save a file as the next version')
    .argument('<session>')
    .argument('<file>')
    .option('--name <name>', 'name of the artifact [that of the file]')
    .option('--type <mime>', 'media type', 'application/octet-stream')
    .action(async (session: string, file: string, _options, command: Command) =>
      (await import('./artifacts.ts')).putArtifact(
        session,
        file,
        command.optsWithGlobals<GlobalOptions & { name?: string; type: string }>(),
      ),
    );
}
