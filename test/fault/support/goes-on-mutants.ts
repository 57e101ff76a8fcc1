import { change, type Mutant } from './mutant.ts';

const GOES_ON = ['api/goes-on'];
const HAND_OVER = ['api/hand-over'];
const LEDGER = { tests: ['tool-calls'] };
const TRANSACTIONS = { tests: ['transactional-tools'] };
const KEPT = { tests: ['session-lock'], only: 'whose request is kept' };

/** Breaks what becomes of an invocation that goes on in another process. */
export const GOES_ON_MUTANTS: Mutant[] = [
  {
    name: 'goes on after a death without end',
    changes: change('toError', 'run.attempt < attempts ?', 'run.attempt > 0 ?'),
    ...KEPT,
  },
  {
    name: 'goes on after a second death without a pause',
    changes: change('toPause', 'attempt === 1 ?', 'attempt > 0 ?'),
    ...KEPT,
  },
  {
    name: 'goes on, and repeats a call that acts once',
    changes: change('settleEarlier', "state === 'started' && getEffect(tool) !== 'once'", "state === 'started'"),
    tests: GOES_ON,
  },
  {
    name: 'goes on, and runs a call again that had answered beside others',
    changes: change('callTools', 'running > 0', 'false'),
    ...LEDGER,
    only: 'beside others',
  },
  {
    name: 'goes on, and names what a call does anew',
    changes: change('newInvocationState', '[...names, id]', '[...names, id, Math.random()]'),
    ...LEDGER,
    only: 'beside others',
  },
  {
    name: 'goes on, and takes a confirmed call that had not begun for unknown',
    changes: change(
      'lookUp',
      'ledger && records.length > 0 ? ledger.write(records) : new Map()',
      "new Map(records.map(({ id }) => [id, { state: 'started', attempt: 1, response: null }]))",
    ),
    ...LEDGER,
    only: 'a person confirmed',
  },
  {
    name: 'goes on, and asks no check',
    changes: change('settleEarlier', 'outcome?.done === false', 'outcome?.done !== undefined'),
    ...LEDGER,
    only: 'its check says',
  },
  {
    name: 'takes a call that was cut off for done',
    changes: change('runTool', "transactional ? 'done' : 'unknown'", "'done'"),
    ...LEDGER,
    only: 'cut off',
  },
  {
    name: 'lets a person settle, and does not go on',
    changes: change('change_task', "p_action in ('reject', 'settle')", "p_action = 'reject'"),
    ...LEDGER,
    only: 'who says: done',
  },
  {
    name: 'goes on, and appends a stored step again',
    changes: change('storeEvent', 'if (running.stored?.has(event)) return;', ''),
    tests: GOES_ON,
  },
  {
    name: 'goes on, and asks the model again for what is stored',
    changes: change('callModel', 'if (stored) return stored;', ''),
    tests: GOES_ON,
  },
  {
    name: 'goes on with credentials in the row',
    changes: change('toQueuedRequest', '!mcpServers?.some(hasCredential)', 'mcpServers !== null'),
    tests: GOES_ON,
    only: 'credentials',
  },
  {
    name: 'goes on, and is counted by its budget again',
    changes: change(
      'claim_session',
      'if not p_is_free and not v_has_begun then perform count_use',
      'if true then perform count_use',
    ),
    tests: GOES_ON,
  },
  {
    name: 'goes on for a key that was revoked',
    changes: change('runQueued', 'isRevoked ? REVOKED : read.refusal', 'read.refusal'),
    tests: GOES_ON,
    only: 'revoked',
  },
  {
    name: 'goes on without what tools put under temp:',
    changes: change('keepTemporary', '|| ${escapeJson(values)}::jsonb', ''),
    tests: GOES_ON,
    only: 'temp:',
  },
  {
    name: 'takes up all that it finds',
    changes: change('runBackgroundQueue', 'limit: slots }', 'limit: 1_000 }'),
    tests: ['take-up'],
  },
  {
    name: 'finds what waits behind others',
    changes: change('listHeads', 'session.isFree,', ''),
    tests: ['queue-heads'],
    only: 'busy sessions',
  },
  {
    name: 'tells a client of a failure where another process goes on',
    changes: change('toLossError', 'if (!isThere) return error;', 'if (isThere) return error;'),
    tests: ['left-runs'],
  },
  {
    name: 'gives up the run of a cronjob whose invocation goes on',
    changes: change('giveUpRun', 'return executeRun(context, claimed, signal)', 'void signal'),
    tests: ['cronjob-changes'],
    only: 'died twice',
  },
  {
    name: 'ends what runs when it stops',
    changes: change('HandOver', 'context.limits.attempts > 1 &&', 'context.limits.attempts > 99 &&'),
    tests: HAND_OVER,
  },
  {
    name: 'leaves a run while a tool runs',
    changes: change('HandOver', '&& this.#open.size === 0', ''),
    tests: ['invocations/hand-over'],
  },
  {
    name: 'counts a hand-over as a death',
    changes: change('putBack', 'Number(isHandedOver)', '0'),
    tests: HAND_OVER,
    only: '/run:',
  },
  {
    name: 'gives the prompt of a cronjob again after a hand-over',
    changes: change('attemptRun', 'error instanceof UnavailableError && context.draining.aborted', 'false'),
    tests: HAND_OVER,
    only: 'cronjob',
  },
  {
    name: 'goes on, and forgets what was answered, where a call begins that is done',
    changes: change('record_calls', "excluded.state <> 'started' or excluded.attempt > t.attempt", 'true'),
    ...LEDGER,
    only: 'beside others',
  },
  {
    name: 'goes on, and tells a person who says "run again" that nobody knows',
    changes: change('settleEarlier', "if (state === 'settled') return undefined;", ''),
    ...LEDGER,
    only: 'who says: run_again',
  },
  {
    name: 'finds no call by its operation',
    changes: change('lockCall', 'eq(sql`${toolCalls.operationId}::text`, callId)', 'sql`false`'),
    ...LEDGER,
    only: 'by its operation',
  },
  {
    name: 'takes a call for done to which no answer came',
    changes: change('runTool', 'error instanceof UnknownOutcomeError', 'error === undefined'),
    ...LEDGER,
    only: 'whose answer did not come',
  },
  {
    name: 'takes an MCP call for done that took too long',
    changes: change('toMcpError', 'isAnswered || isUnsent ? AgentError : Unsure', 'AgentError'),
    tests: ['agent/mcp/mcp'],
    only: 'a call that hangs',
  },
  {
    name: 'commits a transaction without its response',
    changes: change('InvocationLedger', 'record && this.#keep', 'record?.id === "" && this.#keep'),
    tests: ['fault/goes-on'],
    only: 'asking',
  },
  {
    name: 'commits a transaction whose lease is lost',
    changes: change('invocations/keepCalls', 'if (!held) throw', 'if (held === undefined) throw'),
    ...TRANSACTIONS,
    only: 'runs again in the next process',
  },
  {
    name: 'takes a transaction for lost that was committed',
    changes: change('InvocationLedger', "ledgerCall?.state === 'done'", "ledgerCall?.state === 'settled'"),
    tests: ['fault/goes-on'],
    only: 'whose connection breaks',
  },
  {
    name: 'takes a transaction that was cut off for unknown',
    changes: change('runTool', "transactional ? 'done' : 'unknown'", "'unknown'"),
    ...TRANSACTIONS,
    only: 'cut off by a cancellation',
  },
  {
    name: 'takes a transaction for unknown that nobody goes on with',
    changes: change('finish_invocation', "or t.effect = 'transactional'", ''),
    ...TRANSACTIONS,
    only: 'no other process',
  },
  {
    name: 'repeats an agent whose tool has committed a transaction',
    changes: change('getEffect', "['once', 'transactional'].includes(getEffect(tool))", "getEffect(tool) === 'once'"),
    ...TRANSACTIONS,
    only: 'inside of an agent',
  },
  {
    name: 'lets a tool send statements when its transaction is over',
    changes: change('openToolDatabase', 'if (isOver) throw', 'if (limit.signal.aborted) throw'),
    ...TRANSACTIONS,
    only: 'leaves nothing where it throws',
  },
  {
    name: 'lets a tool commit its transaction itself',
    changes: change('checkStatement', '!FIRST_WORD.test(text)', "text === ''"),
    ...TRANSACTIONS,
    only: 'sees the tables of the tools alone',
  },
  {
    name: 'lets a tool call what changes the settings of its transaction',
    changes: change('checkStatement', "refused !== ''", "refused === 'nothing'"),
    ...TRANSACTIONS,
    only: 'in every place of a statement',
  },
  {
    name: 'sends the statements of a transaction as the role that serves',
    changes: change('openToolDatabase', 'role: TOOLS_ROLE', 'role: undefined'),
    ...TRANSACTIONS,
    only: 'sees the tables of the tools alone',
  },
  {
    name: 'makes the tables of transactional tools in part',
    changes: change('applyMissing', "await client.query('begin isolation level read committed');", ''),
    ...TRANSACTIONS,
    only: 'wholly or not at all',
  },
  {
    name: 'goes on, and does not wait for a transaction that may still commit its answer',
    changes: change('keep_calls', 'for update) k)', ') k)'),
    tests: ['store/invocation-ledger'],
    only: 'looks a call up',
  },
  {
    name: 'takes over beside a transaction that keeps an answer',
    changes: change('keep_calls', 'for share;', ';'),
    tests: ['store/invocation-ledger'],
    only: 'a take-over waits',
  },
  {
    name: 'counts the time between two processes into that of an invocation',
    changes: change('putBack', 'least(${invocations.leaseExpireTime}, statement_timestamp())', 'statement_timestamp()'),
    ...KEPT,
  },
  {
    name: 'goes on, and has all of its time again',
    changes: change('claim_session', "(v_now - (i.request #>> '{began,spentMs}')::numeric / 1000)", 'v_now'),
    ...KEPT,
  },
  {
    name: 'goes on with a live turn as if it were none',
    changes: change('toQueuedRequest', 'isLive, waitsForBudget, answer, ...', 'waitsForBudget, answer, ...'),
    tests: HAND_OVER,
    only: 'live session',
  },
  {
    name: 'takes transactional tools on a cluster',
    changes: change('checkToolDatabase', 'if (await isOnCluster(client))', 'if (await Promise.resolve(false))'),
    ...TRANSACTIONS,
    only: 'on a cluster',
  },
  {
    name: 'makes tables of transactional tools on a cluster',
    changes: change('migrateTools', 'if (await isOnCluster(client))', 'if (await Promise.resolve(false))'),
    ...TRANSACTIONS,
    only: 'on a cluster',
  },
  {
    name: 'lets one user have all connections of transactional tools',
    changes: change('FairSemaphore', 'this.#limit?.isStrict === true', 'false'),
    tests: ['work/fair-semaphore'],
    only: 'strict',
  },
];
