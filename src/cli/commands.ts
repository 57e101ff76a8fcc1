import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Command } from 'commander';
import type { CommandRow, OperationRow } from './command-row.ts';
import { toLine, toTime } from './output.ts';
import type { GateOptions } from './replay-gate.ts';
import type { ReplayOptions } from './replay.ts';
import type { SessionDiff } from './sessions.ts';

/** First words that several commands have, with the descriptions of these families. */
export const FAMILIES: Record<string, string> = {
  keys: 'runtime keys',
  sessions: 'the sessions of --user with --app',
  artifacts: 'the artifacts of a session',
  eval: 'evaluation sets',
  cron: 'cronjobs, of a service that runs',
  invocations: 'what an application was asked',
  budgets: 'what the users of --app may use',
  tasks: 'what waits for a person, of a service that runs',
  users: 'the users of --app, and all data of one',
};

interface PutOptions {
  file: string;
  name?: string;
  type: string;
}

interface AddOptions {
  app: string;
  where?: string;
  error?: boolean;
  limit: string;
}

interface BudgetOptions {
  app: string;
  of: string;
  period: string;
  for?: string;
}

/** The arguments that name a budget. */
const BUDGETS = [{ choices: ['app', 'users', 'user'] }, { choices: ['day', 'month'] }];

/** Where a replay or an evaluation run takes answers of models or tools from: the recording, or live calls. */
const MODES = ['stored', 'live'];

/** What needs no service. */
export const ALONE: readonly CommandRow[] = [
  {
    usage: 'start',
    globals: [],
    about: 'start the service, also without a command',
    example: 'PORT=8080 agent-runtime start',
    // The command `dev` sets this option, so that a reload prints the changed file.
    options: [['--changed <file>', '', { isHidden: true }]],
    run: async (command) => (await import('./start.ts')).start(command.opts<{ changed?: string }>().changed),
  },
  {
    usage: 'dev',
    globals: [],
    about: 'start the service with the development UI; restart it when an agent or a setting changes',
    example: 'agent-runtime dev --no-open',
    options: [['--no-open', 'do not open the browser']],
    run: async (command) => (await import('./dev.ts')).dev(command.opts<{ open: boolean }>().open),
  },
  {
    usage: 'migrate',
    globals: [],
    about: 'apply the migrations to DATABASE_URL and end',
    example: 'DATABASE_URL=postgres://agents@db/agents agent-runtime migrate --check',
    options: [['--check', 'change nothing; end with 1 and what is missing where DATABASE_URL is not up to date']],
    run: async (command) =>
      (await import('./start.ts')).migrateOnly({ isCheck: command.opts<{ check?: boolean }>().check === true }),
  },
  {
    usage: 'check',
    globals: [],
    about: 'print the effective configuration of the agent and end',
    example: 'HARNESS_FILE=harness.yaml agent-runtime check',
    run: async () => (await import('./start.ts')).check(),
  },
  {
    usage: 'doctor',
    globals: ['json'],
    about: 'say what is wrong with the settings, the database, the model and this machine; exit code 1 if anything',
    example: 'agent-runtime doctor --json',
    run: async (command) => (await import('./doctor/doctor.ts')).doctor(command.optsWithGlobals()),
  },
  {
    usage: 'openapi',
    globals: [],
    about: 'print the OpenAPI document with every operation and end',
    example: 'agent-runtime openapi > openapi.json',
    run: async () => (await import('./start.ts')).printOpenApi(),
  },
  {
    usage: 'mcp',
    globals: ['url', 'app', 'user'],
    about: 'hand MCP messages on standard input to the service, for clients that speak nothing else',
    example: 'agent-runtime --url http://127.0.0.1:8000 mcp',
    run: async (command) => (await import('./mcp.ts')).bridgeMcp(command.optsWithGlobals(), command),
  },
  {
    usage: 'init [directory]',
    globals: [],
    about: 'make a new project: an agent with a tool, a test, a compose file',
    example: 'agent-runtime init my-agent',
    args: [{ about: 'where', default: '.' }],
    run: async (_command, directory: string) => (await import('./init.ts')).init(directory),
  },
  {
    usage: 'completion <shell>',
    globals: [],
    about: 'print a script that completes commands and options',
    example: 'source <(agent-runtime completion bash)',
    args: [{ choices: ['bash', 'zsh', 'fish'] }],
    run: async (command, shell: 'bash' | 'zsh' | 'fish') =>
      (await import('./completion.ts')).printCompletion(command.parent as Command, shell),
  },
  {
    usage: 'keys create',
    globals: ['json'],
    about: 'print a new runtime key and its line for RUNTIME_API_KEYS_FILE',
    example: 'agent-runtime keys create --scopes invoke,read --users ann --expires 2030-01-01T00:00:00Z',
    options: [
      ['--scopes <list>', 'with commas [all that users have]'],
      ['--users <list>', 'users that the key acts for [all]'],
      ['--apps <list>', 'applications [all]'],
      ['--expires <time>', 'e.g. 2030-01-01T00:00:00Z [never]'],
      ['--id <name>', 'name of the key in logs'],
    ],
    run: async (command) => (await import('./keys.ts')).createKeys(command.optsWithGlobals()),
  },
];

const CONVERSATION: CommandRow[] = [
  {
    usage: 'chat',
    about: 'a conversation in the terminal; Ctrl-C cancels what runs',
    example: 'agent-runtime chat --user ann --session s1',
    options: [['--session <id>', 'resume a session, or choose the id of a new one']],
    run: async (command) => (await import('./chat.ts')).chat(command.optsWithGlobals()),
  },
  {
    usage: 'invoke <message...>',
    about: 'send one message and print the answer',
    example: 'agent-runtime invoke "What is 17 * 23? Use the calculator."',
    options: [['--session <id>', 'the session to say it in [a new one]']],
    run: async (command, words: string[]) => (await import('./chat.ts')).invoke(words, command.optsWithGlobals()),
  },
];

/** Maximum number of characters of a session's first text that a list prints. */
const TEXT_SHOWN = 60;

const SESSIONS: (CommandRow | OperationRow)[] = [
  {
    usage: 'sessions list',
    about: 'the newest first',
    example: 'agent-runtime sessions list --label env=prod --text refund --limit 10',
    operation: 'listSessions',
    fills: { label: 'label', text: 'text', sort: 'sort', order: 'order' },
    options: [['--limit <n>', 'maximum number', { default: '50' }]],
    values: () => ({ withDetails: true }),
    columns: {
      session: 'id',
      'last update': ['lastUpdateTime', toTime],
      labels: [
        'labels',
        (labels: Record<string, string> = {}) =>
          Object.entries(labels)
            .map((each) => each.join('='))
            .join(' '),
      ],
      'first text': ['firstText', (text = '') => toLine(text, TEXT_SHOWN)],
    },
    empty: ({ user, app }) => `${user} has no such sessions with ${app}.`,
  },
  {
    usage: 'sessions show <id>',
    about: 'the conversation',
    example: 'agent-runtime sessions show s1 --at 4',
    operation: 'getSession',
    fills: { id: 'session_id', at: 'atSequence' },
    lines: async (session) => (await import('./sessions.ts')).toConversation(session),
  },
  {
    usage: 'sessions export [id...]',
    about: 'sessions with their events as JSON Lines, on the output',
    example: 'agent-runtime sessions export > sessions.jsonl',
    args: [{ about: 'all if none is named' }],
    run: async (command, ids: string[]) =>
      (await import('./sessions.ts')).exportSessions(ids, command.optsWithGlobals()),
  },
  {
    usage: 'sessions fork <session>',
    about: 'a new session with the first events of this one, the state and the artifacts of then',
    example: 'agent-runtime sessions fork s1 --at 4 --id s2',
    operation: 'forkSession',
    fills: { session: 'session_id', at: 'atSequence', id: 'sessionId', label: 'labels' },
    text: ({ id }: { id: string }) => id,
  },
  {
    usage: 'sessions diff <id> <other>',
    about: 'how two sessions differ; exit code 0 they do not, 1 they do',
    example: 'agent-runtime sessions diff s1 s2',
    operation: 'diffSessions',
    fills: { id: 'session_id', other: 'other', at: 'atSequence', otherAt: 'otherAtSequence' },
    lines: async (diff) => (await import('./sessions.ts')).toDiffLines(diff),
    exitCode: ({ differingEvents, differingKeys }: SessionDiff) => Number(differingEvents + differingKeys > 0),
  },
  {
    usage: 'sessions label <id> [name=value...]',
    about: 'set labels, name=value, and print all',
    example: 'agent-runtime sessions label s1 env=prod --remove draft',
    options: [['--remove <name...>', 'labels to remove']],
    run: async (command, id: string, labels: string[]) =>
      (await import('./sessions.ts')).labelSession(id, labels, command.optsWithGlobals()),
  },
];

const ARTIFACTS: OperationRow[] = [
  {
    usage: 'artifacts list <session>',
    about: 'their names',
    example: 'agent-runtime artifacts list s1',
    operation: 'listArtifacts',
    fills: { session: 'session_id' },
    text: (names: string[]) => names.join('\n'),
  },
  {
    usage: 'artifacts get <session> <name>',
    about: 'the bytes of an artifact, on the output',
    example: 'agent-runtime artifacts get s1 report.pdf --version 0 > report.pdf',
    operation: 'loadArtifact',
    fills: { session: 'session_id', name: 'artifact_name', version: 'version' },
    values: () => ({ alt: 'media' }),
    isRaw: true,
  },
  {
    usage: 'artifacts put <session> <file>',
    about: 'save a file as the next version',
    example: 'agent-runtime artifacts put s1 report.pdf --type application/pdf',
    operation: 'saveArtifact',
    fills: { session: 'session_id' },
    options: [
      ['--name <name>', 'name of the artifact [that of the file]'],
      ['--type <mime>', 'media type', { default: 'application/octet-stream' }],
    ],
    values: async ({ file, name = basename(file), type: mimeType }: PutOptions) => ({
      filename: name,
      artifact: { inlineData: { mimeType, data: (await readFile(file)).toString('base64') } },
    }),
    text: ({ version }: { version: number }, { file, name = basename(file) }: PutOptions) =>
      `${name}, version ${version}`,
  },
];

const EVALUATION: (CommandRow | OperationRow)[] = [
  {
    usage: 'eval run <set...>',
    about:
      'run sets against the agent as it is deployed: exit code 0 all passed, 1 not all, 2 could not run, 3 not compared',
    example: 'agent-runtime eval run smoke --trials 5 --junit report.xml',
    args: [{ about: 'a set, or set:case,case' }],
    options: [
      ['--config <file>', 'a test_config.json with the metrics'],
      ['--trials <n>', 'how often each case is run', { default: '1' }],
      ['--threshold <share>', 'share of its trials that must pass for a case to pass', { default: '1' }],
      ['--parallelism <n>', 'cases at once'],
      ['--model <mode>', 'where answers of models come from [as the set says]', { choices: MODES }],
      ['--tools <mode>', 'where answers of tools come from [as the set says]', { choices: MODES }],
      ['--baseline <run>', 'an earlier run to compare with; a regression fails'],
      ['--junit <file>', 'write a report for CI'],
      ['--allow-not-evaluated', 'cases of which no metric says anything do not fail'],
    ],
    run: async (command, sets: string[]) => (await import('./eval.ts')).runSets(sets, command.optsWithGlobals()),
  },
  {
    usage: 'eval add <set>',
    about: 'make cases of stored sessions: those that all options choose',
    example: 'agent-runtime eval add smoke --label env=prod --error --limit 20',
    args: [{ about: 'made if it is absent' }],
    operation: 'addSessionsToEvalSet',
    fills: { set: 'eval_set_id', tool: 'tool', label: 'labels', limit: 'limit' },
    options: [
      ['--where <sql>', 'a condition on the row s of sessions, in the database of the settings'],
      ['--error', 'with an event of an error'],
      ['--no-error', 'without one'],
      ['--limit <n>', 'at most so many, last updated first', { default: '50' }],
    ],
    values: async ({ where, app, error: hasError, limit }: AddOptions) => ({
      hasError,
      ...(where !== undefined && {
        sessions: await (await import('./sessions-where.ts')).chooseSessions(where, app, Number(limit)),
      }),
    }),
    text: ({ evalIds }: { evalIds: string[] }) => evalIds.join('\n') || 'No session was chosen.',
  },
  {
    usage: 'eval export <set>',
    about: 'print a set as the .evalset.json that every version of ADK reads',
    example: 'agent-runtime eval export smoke --out smoke.evalset.json',
    options: [['--out <file>', 'write it there']],
    run: async (command, set: string) => (await import('./eval.ts')).exportSet(set, command.optsWithGlobals()),
  },
  {
    usage: 'eval list [set]',
    about: 'the latest runs',
    example: 'agent-runtime eval list smoke',
    operation: 'listEvalRuns',
    fills: { set: 'evalSetId' },
    values: () => ({ limit: 50 }),
    columns: {
      run: 'runId',
      set: 'evalSetId',
      status: 'status',
      passed: ['counts', ({ passed, total }: Record<string, number>) => `${passed}/${total}`],
    },
    empty: () => 'There are no runs.',
  },
  {
    usage: 'eval compare <run> <baseline>',
    about: 'what changed from one run to another; exit code 1 for a regression, 3 for what was not compared',
    example: 'agent-runtime eval compare 0b7f… 91c2…',
    run: async (command, run: string, baseline: string) =>
      (await import('./eval.ts')).compareRuns(run, baseline, command.optsWithGlobals()),
  },
];

const TASKS = {
  operation: 'listTasks',
  all: 'listTasks',
  needsRunning: true,
  columns: {
    task: 'id',
    kind: 'kind',
    user: 'requestedBy',
    until: ['expireTime', (seconds?: number) => (seconds === undefined ? '–' : new Date(seconds * 1000).toISOString())],
    tool: 'form.tool',
    asked: ['form.hint', (hint = '') => hint],
  },
  empty: ({ all, user }) =>
    all ? 'There are no open tasks.' : `No open tasks for \`${user}\`; --all lists those of all.`,
} satisfies Partial<OperationRow>;

const WORK: (CommandRow | OperationRow)[] = [
  {
    usage: 'invocations list',
    about: 'those of all users of --app, the newest first, with why they failed',
    example: 'agent-runtime invocations list --status failed --limit 20',
    operation: 'listAppInvocations',
    fills: {
      status: 'status',
      error: 'errorCode',
      stranded: 'stranded',
      agent: 'agent',
      of: 'userId',
      session: 'sessionId',
      text: 'text',
    },
    options: [['--limit <n>', 'maximum number', { default: '50' }]],
    columns: {
      requested: ['createTime', toTime],
      status: 'status',
      error: ['error.code', (code = '–') => code],
      agent: ['agent', (agent = '–') => agent],
      user: 'userId',
      session: 'sessionId',
      invocation: 'id',
      asked: ['firstText', (text = '') => toLine(text, TEXT_SHOWN)],
    },
    empty: () => 'There are no such invocations.',
  },
  {
    usage: 'invocations cancel <session> <invocation>',
    about: 'end one of --user that runs, waits or is paused; one that runs ends when its process hears of it',
    example: 'agent-runtime invocations cancel s1 0b7f… --user ann',
    operation: 'cancelInvocation',
    fills: { session: 'session_id', invocation: 'invocation_id' },
    text: ({ id, status }: { id: string; status: string }) => `invocation ${id}: ${status}`,
  },
  {
    usage: 'budgets list',
    about: 'those of --app, with what is used in this day or month',
    example: 'agent-runtime budgets list --of ann',
    operation: 'listBudgets',
    fills: { of: 'ofUser' },
    columns: {
      'applies to': 'appliesTo',
      user: 'forUser',
      each: 'period',
      'max invocations': 'maxInvocations',
      'used invocations': 'used.invocations',
      'max tokens': 'maxTokens',
      'used tokens': 'used.tokens',
      'max cost': 'maxCost',
      'used cost': 'used.cost',
      'used up': 'isUsedUp',
    },
    empty: ({ app }) => `No budget is set for ${app}.`,
  },
  {
    usage: 'budgets set <of> <period>',
    about:
      'what all users (app), each user (users) or one user may use in a day or month, in the place of what was set',
    example: 'agent-runtime budgets set app day --max-tokens 1000000 --max-cost 2.5',
    operation: 'saveBudget',
    args: BUDGETS,
    fills: {
      of: 'appliesTo',
      period: 'period',
      for: 'forUser',
      maxInvocations: 'maxInvocations',
      maxTokens: 'maxTokens',
      maxCost: 'maxCost',
      webhook: 'webhookId',
    },
    text: (_: null, { app, of, period, for: user }: BudgetOptions) =>
      `budget of ${user ?? of} in ${app} for each ${period}: set`,
  },
  {
    usage: 'budgets remove <of> <period>',
    about: 'no limit any more; succeeds where there was none',
    example: 'agent-runtime budgets remove user month --for ann',
    operation: 'deleteBudget',
    args: BUDGETS,
    fills: { of: 'appliesTo', period: 'period', for: 'forUser' },
    text: (_: null, { app, of, period, for: user }: BudgetOptions) =>
      `budget of ${user ?? of} in ${app} for each ${period}: removed`,
  },
  {
    usage: 'cron list',
    about: 'those of --user',
    example: 'agent-runtime cron list --all',
    operation: 'listCronjobs',
    all: 'listAllCronjobs',
    needsRunning: true,
    columns: {
      cronjob: 'jobId',
      user: 'ownerId',
      enabled: 'enabled',
      next: 'nextRunAt',
      latest: 'latestRun.status',
      name: 'name',
    },
    empty: () => 'There are no cronjobs.',
  },
  {
    usage: 'cron run <id>',
    about: 'fire one now',
    example: 'agent-runtime cron run 7d0c…',
    operation: 'runCronjob',
    fills: { id: 'job_id' },
    needsRunning: true,
    text: ({ runId, status }: { runId: string; status: string }) => `run ${runId}: ${status}`,
  },
  {
    ...TASKS,
    usage: 'tasks list',
    about: 'those of --user',
    example: 'agent-runtime tasks list --all',
  },
  {
    ...TASKS,
    usage: 'tasks watch',
    about: 'those of --user, each as it comes',
    example: 'agent-runtime tasks watch --all',
    watchMs: 2_000,
  },
  {
    usage: 'tasks answer <id>',
    about: 'say yes, or give an answer',
    example: 'agent-runtime tasks answer 0b7f… --by ann',
    operation: 'changeTask',
    fills: { id: 'task_id', answer: 'answer', by: 'by' },
    options: [['--reject', 'say no']],
    values: ({ reject }: { reject?: boolean }) =>
      reject ? { action: 'reject', answer: undefined } : { action: 'answer' },
    // The answer resumes the invocation, and a service that stopped with the command would interrupt it.
    needsRunning: true,
    text: ({ id, state }: { id: string; state: string }) => `task ${id}: ${state}`,
  },
  {
    usage: 'replay [session] [invocation]',
    about:
      'run stored invocations again and name the first differences: exit code 0 none, 1 some, 2 not possible, ' +
      '3 not compared',
    example: 'agent-runtime replay --since 7d --sample 200 --junit replay.xml',
    args: [{ about: 'one of --user; with --since none' }, { about: 'the latest one if none is named' }],
    options: [
      ['--model <mode>', 'where answers of models come from', { choices: MODES, default: 'stored' }],
      ['--tools <mode>', 'where answers of tools come from', { choices: MODES, default: 'stored' }],
      ['--system-prompt <text>', 'try another instruction'],
      ['--since <time>', 'a sample of the invocations of --app of the last 30m, 12h or 7d, all users'],
      ['--sample <n>', 'how many of them', { default: '200' }],
      ['--live <share>', 'of how many of those the live model is asked, such as 5%'],
      ['--budget <tokens>', 'what these calls may use together'],
      ['--junit <file>', 'write a report of the sample for CI'],
      ['--cache', 'a request that breaks the prompt cache at no declared point is a difference too'],
      ['--allow-changes', 'with --cache: not if the instruction or the tools changed since the last invocation'],
    ],
    run: async (command, session: string | undefined, invocation: string | undefined) => {
      const options: ReplayOptions & GateOptions = command.optsWithGlobals();
      if ((session === undefined) === (options.since === undefined)) command.error('Name a session, or --since.');
      if (options.allowChanges && !options.cache) command.error('--allow-changes says something of --cache.');
      if (session === undefined) return (await import('./replay-gate.ts')).runGate(options);
      return (await import('./replay.ts')).replay(session, invocation, options);
    },
  },
  {
    usage: 'import <source>',
    about:
      'bring sessions or an evaluation set in from elsewhere; what is there already stays as it is, so it can be run again',
    example: 'agent-runtime import sessions.sqlite --as weather --dry-run',
    args: [
      {
        about:
          "a SQLite file or postgres:// URL of ADK Python's session services, http(s):// of an ADK server, a file of " +
          '`sessions export` or `users export`, or an .evalset.json',
      },
    ],
    options: [
      ['--as <app>', 'the application that they become sessions of [that of the same name]'],
      ['--users <list>', 'with commas: whose sessions to read from a server, which lists no users [--user]'],
      ['--artifacts <directory>', "the directory of ADK's file artifact service"],
      ['--replace', 'an evaluation set takes the place of the one with its id and of all its cases'],
      ['--dry-run', 'say what would be imported'],
    ],
    more: 'The key for an ADK server stands in IMPORT_KEY.',
    run: async (command, source: string) => (await import('./import.ts')).importFrom(source, command.optsWithGlobals()),
  },
];

const USERS: (CommandRow | OperationRow)[] = [
  {
    usage: 'retention',
    about: 'what the settings of retention would delete now; a dry run, the service deletes by itself',
    example: 'agent-runtime retention',
    options: [['--dry-run', 'the only thing that it does']],
    operation: 'countUnretained',
    text: ({ sessions, artifactVersions }: Record<string, number>) =>
      `${sessions} sessions, ${artifactVersions} versions of artifacts would be deleted`,
  },
  {
    usage: 'users list',
    about: 'those of whom --app holds anything',
    example: 'agent-runtime users list --app weather',
    operation: 'listUsers',
    columns: { user: 'userId' },
    empty: () => 'There are no users.',
  },
  {
    usage: 'users erase <user>',
    about: 'delete all that --app holds of a user, and print how much it was; can be run again',
    example: 'agent-runtime users erase ann --dry-run',
    options: [
      ['--all-apps', 'of every application that holds something'],
      ['--dry-run', 'count and change nothing'],
    ],
    run: async (command, user: string) => (await import('./users.ts')).eraseUser(user, command.optsWithGlobals()),
  },
  {
    usage: 'users export <user>',
    about: 'all that --app holds of a user as JSON Lines, on the output; `import` takes them',
    example: 'agent-runtime users export ann > ann.jsonl',
    operation: 'exportUser',
    fills: { user: 'user_id' },
    isRaw: true,
  },
];

/** All commands, in the order of the help. */
export const COMMANDS: readonly (CommandRow | OperationRow)[] = [
  ...ALONE,
  ...CONVERSATION,
  ...SESSIONS,
  ...ARTIFACTS,
  ...EVALUATION,
  ...WORK,
  ...USERS,
];
