/** What is not tested on a cluster, by file or by the beginning of a test's name, groups included or not; why. */

const NO_ROW_SECURITY = 'row-level security is void on a cluster: its policies look at settings of the connection';
const NO_CRONJOBS = 'CRONJOBS=true is refused on a cluster';
const NO_RULES = 'rules of scores are refused on a cluster';
const NO_TOOL_TABLES = 'transactional tools are refused on a cluster, which a test of their own says';
const NO_VECTORS = 'memory is searched by words alone on a cluster: no vectors are made there';
const ONE_A_NODE = 'the test counts statements, and the text of each session is one of its node there';
const OF_ONE_SERVER = 'the test looks at plans, locks or roles of one server';
const OWN_STATEMENTS = 'a statement of the test itself is none that a cluster takes; those of the service are';
const LOGGED = 'the test compares all that is printed, and there it says that row-level security is void';
const TRUSTED = 'nodes of a cluster may sign each other in without a password';
const OWN_SCHEMA = 'the test makes or drops schemas and tables that the extension and its nodes must agree on';

/** Settings that the start refuses; the application of a test file is started without them. */
export const SETTINGS_NOT_FOR_CLUSTERS = ['CRONJOBS'];

/** Files of which no test is run. */
export const FILES_NOT_FOR_CLUSTERS: Record<string, string> = {
  'test/store/row-security.test.ts': NO_ROW_SECURITY,
  'test/store/rights.test.ts': NO_ROW_SECURITY,
  'test/store/cronjobs.test.ts': NO_CRONJOBS,
  'test/store/plans.test.ts': OF_ONE_SERVER,
  'test/store/meaning.test.ts': NO_VECTORS,
  'test/api/meaning.test.ts': NO_VECTORS,
  'test/api/command-modes.test.ts': NO_CRONJOBS,
  'test/api/cronjob-changes.test.ts': NO_CRONJOBS,
  'test/api/cronjobs.test.ts': NO_CRONJOBS,
  'test/api/large-numbers.test.ts': NO_CRONJOBS,
  'test/api/online-scores.test.ts': NO_RULES,
  'test/api/resource-contract.test.ts': NO_CRONJOBS,
  'test/api/user-export.test.ts': NO_CRONJOBS,
  'test/api/pooler.test.ts': 'there is no pooler before the coordinator',
};

const TESTS: Record<string, Record<string, string>> = {
  'test/api/credentials.test.ts': {
    'while the file is away': TRUSTED,
    'a file that is not there': TRUSTED,
    'a password is read from its file': TRUSTED,
  },
  'test/api/eval-command.test.ts': {
    'a table, a report and the exit code': LOGGED,
    'what cannot be run is exit code 2': LOGGED,
    'sessions become cases by a condition in SQL': LOGGED,
  },
  'test/api/exact-json.test.ts': {
    'what would change is refused with its place > createCronjob': NO_CRONJOBS,
    'what would change is refused with its place > previewSchedule': NO_CRONJOBS,
    'what would change is refused with its place > updateCronjob': NO_CRONJOBS,
  },
  'test/api/hand-over.test.ts': { 'the run of a cronjob follows': NO_CRONJOBS },
  'test/api/operator-lists.test.ts': { 'the cronjobs of all users': NO_CRONJOBS },
  'test/api/metrics.test.ts': {
    'the process > a cronjob that is fired': NO_CRONJOBS,
    'the port > has every metric of the list': NO_CRONJOBS,
    'the port > has what the dashboard asks for': NO_CRONJOBS,
  },
  'test/api/managed-database.test.ts': {
    'a role that owns nothing serves from a schema': NO_CRONJOBS,
    'it starts by itself where nothing is missing': 'it goes on from the schema of a test that is left out',
    'rights that the serving role lacks': 'it goes on from the schema of a test that is left out',
    'on a newer database a start is refused': 'it goes on from the schema of a test that is left out',
  },
  'test/api/otlp.test.ts': { 'what rules and requests score': NO_RULES },
  'test/api/process.test.ts': {
    'says where it listens': LOGGED,
    '{"SKILLS":"nope"}': LOGGED,
    'a port that is taken': LOGGED,
  },
  'test/api/stopping-claims.test.ts': {
    'that claims a due cronjob': NO_CRONJOBS,
  },
  'test/api/task-access.test.ts': { 'row-level security alone': NO_ROW_SECURITY },
  'test/api/transactional-tools.test.ts': {
    'a transactional tool >': NO_TOOL_TABLES,
    'are made ': NO_TOOL_TABLES,
    'are missed at the start': NO_TOOL_TABLES,
    'SQL of a model': NO_TOOL_TABLES,
    'a notification of another role': NO_TOOL_TABLES,
  },
  // One test asks all operations, those of cronjobs with them.
  'test/api/unknown-names.test.ts': { 'an operation of this runtime > refuses what it does not know': NO_CRONJOBS },
  'test/api/webhooks.test.ts': {
    'a webhook > that is absent is not found': NO_CRONJOBS,
    'the end of a cronjob run is sent': NO_CRONJOBS,
    'without the setting > no path of webhooks exists': NO_CRONJOBS,
    'a webhook > that is absent cannot be given': NO_CRONJOBS,
    'without the setting > no request can name': NO_CRONJOBS,
  },
  'test/api/tasks.test.ts': {
    'the deadline > answers in place of a person': OWN_STATEMENTS,
  },
  'test/api/eval-runs.test.ts': {
    'a run > of one case claims once':
      'a claim there cannot be told what waits, because the end of a case is on another node',
  },
  'test/api/eval-metrics.test.ts': {
    'metrics of a rule of scores >': NO_RULES,
  },
  'test/api/unknown-apps.test.ts': {
    'createCronjob is refused': NO_CRONJOBS,
  },
  'test/store/deltas.test.ts': {
    'of several sessions only the one': ONE_A_NODE,
    'one statement stores the text': ONE_A_NODE,
  },
  'test/store/history-cache.test.ts': {
    'is not read again': OWN_STATEMENTS,
    'lets the least recently used go': OWN_STATEMENTS,
    'holds for one session too': OWN_STATEMENTS,
  },
  'test/store/inspect.test.ts': { 'a role made as the page says': OF_ONE_SERVER },
  'test/store/inspect-views.test.ts': {
    'agent_runtime_reader reads inspect': 'the other nodes are asked as the role that reads, which has no rights there',
    'inspect.cronjob': NO_CRONJOBS,
    'inspect_outline.cronjob': NO_CRONJOBS,
    'no text of the fixture': NO_CRONJOBS,
    'the statements of docs/admin-sql.md': NO_CRONJOBS,
    'the statements of docs/runbook.md': NO_CRONJOBS,
  },
  'test/store/migrations.test.ts': {
    'a dump is SQL': OWN_SCHEMA,
    'what drizzle-kit migrates': OWN_SCHEMA,
    'all sections may be applied again': 'the test applies the sections of one server',
    'the schema refuses': 'another node names the part of the table that a constraint is of',
  },
  'test/store/schema.test.ts': {
    'every table, view and column': OWN_SCHEMA,
    'eight migrations of one empty database': OWN_SCHEMA,
  },
  'test/store/session-lock.test.ts': {
    'a look that had to wait': OF_ONE_SERVER,
    'a claim that has looked at the queue': OF_ONE_SERVER,
  },
  'test/store/start.test.ts': {
    'a journal of drizzle that may not be read': OF_ONE_SERVER,
    'a schema of their choice': OF_ONE_SERVER,
    'the start knows its database > a view of somebody else': OF_ONE_SERVER,
  },
  'test/store/webhooks.test.ts': { 'a run with a webhook leaves': NO_CRONJOBS },
};

/** Why a test is not run on a cluster; `undefined` where it is. */
export function notForClusters(file: string, names: string[]): string | undefined {
  const found = Object.entries(TESTS[file] ?? {}).find(([start]) => names.some((name) => name.startsWith(start)));
  return FILES_NOT_FOR_CLUSTERS[file] ?? found?.[1];
}
