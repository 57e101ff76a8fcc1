import { type Command, Option } from 'commander';
import type { GateOptions } from './replay-gate.ts';
import type { ReplayOptions } from './replay.ts';

/** Where a replay or an evaluation run takes answers of models or tools from: the recording, or live calls. */
const MODES = ['stored', 'live'];

/** @param end is called with the exit code of `eval run` and `eval compare` */
export function addEvalCommands(program: Command, end: (code: number) => void): void {
  const evaluation = program.command('eval').description('evaluation sets');
  evaluation
    .command('run')
    .description(
      'run sets against the agent as it is deployed: exit code 0 all passed, 1 not all, 2 could not run, 3 not compared',
    )
    .argument('<set...>', 'a set, or set:case,case')
    .option('--config <file>', 'a test_config.json with the metrics')
    .option('--trials <n>', 'how often each case is run', '1')
    .option('--threshold <share>', 'share of its trials that must pass for a case to pass', '1')
    .option('--parallelism <n>', 'cases at once')
    .addOption(new Option('--model <mode>', 'where answers of models come from [as the set says]').choices(MODES))
    .addOption(new Option('--tools <mode>', 'where answers of tools come from [as the set says]').choices(MODES))
    .option('--baseline <run>', 'an earlier run to compare with; a regression fails')
    .option('--junit <file>', 'write a report for CI')
    .option('--allow-not-evaluated', 'cases of which no metric says anything do not fail')
    .action(async (sets: string[], _options, command: Command) =>
      end(await (await import('./eval.ts')).runSets(sets, command.optsWithGlobals())),
    );
  evaluation
    .command('add')
    .description('make cases of stored sessions: those that all options choose')
    .argument('<set>', 'made where it is absent')
    .option('--where <sql>', 'a condition on the row s of sessions, in the database of the settings')
    .option('--tool <name>', 'an agent called this tool')
    .option('--label <label...>', 'with this label: name=value, or name')
    .option('--error', 'with an event of an error')
    .option('--no-error', 'without one')
    .option('--limit <n>', 'at most so many, last updated first', '50')
    .action(async (set: string, _options, command: Command) =>
      (await import('./eval-sessions.ts')).addSessions(set, command.optsWithGlobals()),
    );
  evaluation
    .command('export <set>')
    .description('print a set as the .evalset.json that every version of ADK reads')
    .option('--out <file>', 'write it there')
    .action(async (set: string, _options, command: Command) =>
      (await import('./eval.ts')).exportSet(set, command.optsWithGlobals()),
    );
  evaluation
    .command('list [set]')
    .description('the latest runs')
    .action(async (set: string | undefined, _options, command: Command) =>
      (await import('./eval.ts')).listRuns(set, command.optsWithGlobals()),
    );
  evaluation
    .command('compare <run> <baseline>')
    .description('what changed from one run to another; exit code 1 for a regression, 3 for what was not compared')
    .action(async (run: string, baseline: string, _options, command: Command) =>
      end(await (await import('./eval.ts')).compareRuns(run, baseline, command.optsWithGlobals())),
    );
}

export function addCronCommands(program: Command): void {
  const cron = program.command('cron').description('cronjobs, of a service that runs');
  cron
    .command('list')
    .description('those of --user')
    .option('--all', 'of all users')
    .action(async (_options, command: Command) => (await import('./cron.ts')).listCronjobs(command.optsWithGlobals()));
  cron
    .command('run <id>')
    .description('fire one now')
    .action(async (id: string, _options, command: Command) =>
      (await import('./cron.ts')).runCronjob(id, command.optsWithGlobals()),
    );
}

export function addTaskCommands(program: Command): void {
  const tasks = program.command('tasks').description('what waits for a person, of a service that runs');
  tasks
    .command('list')
    .description('those of --user')
    .option('--all', 'of all users')
    .action(async (_options, command: Command) =>
      (await import('./tasks.ts')).listOpenTasks(command.optsWithGlobals()),
    );
  tasks
    .command('watch')
    .description('those of --user, each as it comes')
    .option('--all', 'of all users')
    .action(async (_options, command: Command) => (await import('./tasks.ts')).watchTasks(command.optsWithGlobals()));
  tasks
    .command('answer <id>')
    .description('say yes, or give an answer')
    .option('--answer <json>', 'an object that fits what is asked')
    .option('--reject', 'say no')
    .option('--by <user>', 'who answers, where a key does for a person')
    .action(async (id: string, _options, command: Command) =>
      (await import('./tasks.ts')).answerTask(id, command.optsWithGlobals()),
    );
}

/** Adds the commands `replay` and `import`. @param end is called with their exit code */
export function addPastCommands(program: Command, end: (code: number) => void): void {
  program
    .command('replay')
    .description(
      'run stored invocations again and name the first differences: exit code 0 none, 1 some, 2 not possible, ' +
        '3 not compared',
    )
    .argument('[session]', 'one of --user; with --since none')
    .argument('[invocation]', 'the latest one where none is named')
    .addOption(new Option('--model <mode>', 'where answers of models come from').choices(MODES).default('stored'))
    .addOption(new Option('--tools <mode>', 'where answers of tools come from').choices(MODES).default('stored'))
    .option('--system-prompt <text>', 'try another instruction')
    .option('--since <time>', 'a sample of the invocations of --app of the last 30m, 12h or 7d, all users')
    .option('--sample <n>', 'how many of them', '200')
    .option('--live <share>', 'of how many of those the live model is asked, such as 5%')
    .option('--budget <tokens>', 'what these calls may use together')
    .option('--junit <file>', 'write a report of the sample for CI')
    .action(async (session: string | undefined, invocation: string | undefined, _options, command: Command) => {
      const options: ReplayOptions & GateOptions = command.optsWithGlobals();
      if ((session === undefined) === (options.since === undefined)) command.error('Name a session, or --since.');
      const { replay } = await import('./replay.ts');
      const { runGate } = await import('./replay-gate.ts');
      end(session === undefined ? await runGate(options) : await replay(session, invocation, options));
    });
  program
    .command('import')
    .description('bring sessions in from elsewhere; what is there already stays as it is, so it can be run again')
    .argument(
      '<source>',
      "a SQLite file or postgres:// URL of ADK Python's session services, http(s):// of an ADK server, a file of " +
        '`sessions export` or `users export`, or an .evalset.json',
    )
    .option('--as <app>', 'the application that they become sessions of [that of the same name]')
    .option('--users <list>', 'with commas: whose sessions to read from a server, which lists no users [--user]')
    .option('--artifacts <directory>', "the directory of ADK's file artifact service")
    .option('--dry-run', 'say what would be imported')
    .addHelpText('after', '\nThe key for an ADK server stands in IMPORT_KEY.')
    .action(async (source: string, _options, command: Command) =>
      end(await (await import('./import.ts')).importFrom(source, command.optsWithGlobals())),
    );
}
