import { CLIENT_MUTANTS } from './client-mutants.ts';
import { DELTA_MUTANTS } from './delta-mutants.ts';
import { DOOR_MUTANTS } from './door-mutants.ts';
import { EVALUATION_MUTANTS } from './evaluation-mutants.ts';
import { GOES_ON_MUTANTS } from './goes-on-mutants.ts';
import { JOB_MUTANTS } from './job-mutants.ts';
import { METRIC_MUTANTS } from './metric-mutants.ts';
import { change, type Mutant } from './mutant.ts';

const LOCK = ['session-lock'];
const SESSIONS = ['store/sessions'];
const OWNERS = ['token-users'];
const SWEEPER = ['sweeper'];
const LOST_REPLIES = { tests: ['lost-replies'], only: 'after the statement' };

const joinedHolder = `
  const joined = await tx.execute(sql\`
    select s.lease_token as token, i.id, i.lease_expire_time > clock_timestamp() as live
    from sessions s left join invocations i on (i.app_name, i.user_id, i.session_id, i.lease_token, i.status)
      = (s.app_name, s.user_id, s.id, s.lease_token, 'running')
    where s.app_name = \${key.appName} and s.user_id = \${key.userId} and s.id = \${key.sessionId} for update of s\`);
  const found = joined.rows[0] as unknown as { token: string; id: string | null; live: boolean | null } | undefined;
  if (found?.token)
    return found.live === true
      ? { kind: 'live', invocationId: found.id ?? '', token: found.token }
      : { kind: 'dead', run: undefined, token: found.token };
  const session = await lockSession(tx, key, skipLocked);`;

/** All of them, in groups of what they break. */
export const MUTANTS: Mutant[] = [
  // Who may write into a session, and in which order.
  {
    name: 'appends without the fence',
    changes: change('append_events', 'and (p_lease is null or s.lease_token = p_lease)', ''),
    tests: LOCK,
  },
  {
    name: 'finishes without the fence',
    changes: change('finish_invocation', 'and s.lease_token = p_token', ''),
    tests: LOCK,
  },
  {
    name: 'renews whatever the token',
    changes: change(
      'renewLease',
      'and(isInvocation(lease), eq(invocations.leaseToken, lease.token), isActive)',
      'isInvocation(lease)',
    ),
    tests: LOCK,
  },
  {
    name: 'claims a session that is held',
    changes: change('claim_session', 'and s.lease_token is null', ''),
    tests: LOCK,
  },
  {
    name: 'claims a place that was cancelled',
    changes: change('claim_session', "and i.status = 'queued' and i.lease_token in (p_token, p_read)", ''),
    tests: LOCK,
  },
  {
    name: 'begins what was begun and left since it was read',
    changes: change('claim_session', 'i.lease_token in (p_token, p_read)', 'i.request is not null'),
    tests: LOCK,
  },
  {
    name: 'forgets the order of the queue',
    changes: change(
      'claim_session',
      '(w.start_time is null, w.create_time, w.id) < (not v_goes_on, v_queued_since, p_invocation)',
      'false',
    ),
    tests: ['queue-order'],
  },
  // What becomes of an invocation whose process died.
  {
    name: 'forgets to lock the session in a take-over',
    changes: change('lockSession', ".for('update', skipLocked ? { skipLocked } : {})", ''),
    tests: LOCK,
  },
  {
    name: 'looks for the holder in one statement, whose join shows an older snapshot',
    changes: change('findLockHolder', 'const session = await lockSession(tx, key, skipLocked);', joinedHolder),
    tests: LOCK,
  },
  {
    name: 'leaves the calls of a dead invocation open',
    changes: change(
      'endIfDead',
      'endingEvents(invocationId, author, events,',
      'endingEvents(invocationId, author, [],',
    ),
    tests: LOCK,
  },
  {
    name: 'lets a zombie take the take-over for its own end',
    changes: change('endIfDead', 'revokesToken: true', 'revokesToken: false'),
    tests: LOCK,
  },
  {
    name: 'waits in the sweep for a locked session',
    changes: change('takeOverOne', '{ skipLocked: true }', '{}'),
    tests: SWEEPER,
  },
  {
    name: 'lets one unreadable session end the sweep',
    changes: change('takeOverOne', 'return false; } }', 'throw error; } }'),
    tests: SWEEPER,
  },
  {
    name: 'never gets behind the sessions that it cannot end',
    changes: change('takeOverAll', 'if (keys.length < PAGE_SIZE) return;', 'return;'),
    tests: SWEEPER,
  },
  {
    name: 'sweeps while another process does',
    changes: change('ifAlone', 'if (rows[0]?.mine !== true) return false;', ''),
    tests: SWEEPER,
  },
  {
    name: 'forgets no keys of operations',
    changes: change('listSweeps', 'deleteOldKeys(db, IDEMPOTENCY_HOURS, signal)', 'Promise.resolve()'),
    tests: SWEEPER,
  },
  {
    name: 'forgets no keys of invocations',
    changes: change('listSweeps', 'forgetInvocationKeys(db, IDEMPOTENCY_HOURS, signal)', 'Promise.resolve()'),
    tests: SWEEPER,
  },
  {
    name: 'deletes no traces',
    changes: change('listSweeps', 'deleteOldSpans(db, TRACE_HOURS, signal)', 'Promise.resolve()'),
    tests: SWEEPER,
  },
  // What is kept, and for whom.
  {
    name: 'orders a page of events by their timestamps',
    changes: change('eventPage', "',' order by sized.sequence", "',' order by (sized.payload ->> 'timestamp')::float8"),
    tests: ['history-cache'],
  },
  {
    name: 'orders events by their timestamp',
    changes: change('eventPieces', 'order by sized.sequence', "order by (sized.payload ->> 'timestamp')::float8"),
    tests: SESSIONS,
  },
  {
    name: 'replaces shared state instead of merging it',
    changes: change('store_events', 'u.state || excluded.state', 'excluded.state'),
    tests: SESSIONS,
  },
  {
    name: 'swallows the conflict of a taken session id',
    changes: change('insertSession', '!created.created', 'false'),
    tests: SESSIONS,
  },
  {
    name: 'lets the time of a session go back',
    changes: change('next_time', "+ interval '1 microsecond'", "- interval '1 hour'"),
    tests: ['clock'],
  },
  {
    name: 'lists the sessions of evaluation runs',
    changes: change('listText', 'not(s.isEval), ', ''),
    tests: SESSIONS,
  },
  {
    name: 'does not undo the escape',
    changes: change('unescapeJson', 'text.replace(MARKED,', 'text.replace(/(?!)/g,'),
    tests: SESSIONS,
  },
  {
    name: 'stores temp: keys',
    changes: change('withoutTemporary', 'if (!isTemporary(key)) kept[key]', 'kept[key]'),
    tests: SESSIONS,
  },
  {
    name: 'shows a session to every user',
    changes: change('isSession', 'and ${table.userId} = ${userId}', 'and ${userId}::text is not null'),
    tests: ['api/sessions'],
  },
  {
    name: 'runs a session of another user who is named in the body',
    changes: change('adk/runAgent', 'owner: ownedByBody', "owner: 'service'"),
    tests: OWNERS,
  },
  {
    name: 'streams a session of another user who is named in the body',
    changes: change('runAgentSse', 'owner: ownedByBody', "owner: 'service'"),
    tests: OWNERS,
  },
  {
    name: 'copies a session of another user who is named in the body',
    changes: change(
      'ofAddedSession',
      'user: ({ body }: { body: SentSession }) => body.userId',
      'user: () => null as never',
    ),
    tests: OWNERS,
  },
  {
    name: 'does not ask whose the user of a body is',
    changes: change('createContentReader', "typeof owner === 'object'", "typeof owner === 'function'"),
    tests: OWNERS,
  },
  {
    name: 'gives two artifact versions one number',
    changes: change('NEXT_NUMBER', 'sql`${artifacts.nextVersion} + 1`', 'artifacts.nextVersion'),
    tests: ['store/artifacts'],
  },
  {
    name: 'restores the keys of users and applications in a rewind',
    changes: change('stateBefore', '/^(app|user|temp):/', '/^temp:/'),
    tests: ['run'],
    only: 'rewind',
  },
  // What is done twice.
  {
    name: 'ignores what the idempotency key came with',
    changes: change('findRepeated', 'invocation && invocation.hash !== request.hash', 'false'),
    tests: ['invocations'],
    only: 'a retry with the same key',
  },
  {
    name: 'shares idempotency keys between users',
    changes: [
      { in: 'idempotency/toScope', from: '`user ${principal.userId}`', to: "'user'" },
      {
        in: 'toSubject',
        from: "userId ?? namedIn(body, 'userId') ?? (principal.kind === 'user' ? principal.userId : '')",
        to: "userId && ''",
      },
    ],
    tests: OWNERS,
  },
  {
    name: 'shares idempotency keys between operations',
    changes: change('once', '`${operationId} ${toScope(principal)}`', 'toScope(principal)'),
    tests: OWNERS,
  },
  {
    name: 'calls a model again after part of its answer came',
    changes: [
      { in: 'providerModel', from: 'hasAnswered || attempt >= maxRetries', to: 'attempt >= maxRetries' },
      { in: 'toFailure', from: 'if (hasAnswered || call.name', to: 'if (call.name' },
    ],
    tests: ['provider-model'],
    only: 'in the middle',
  },
  {
    name: 'summarises for a gain too small',
    changes: change('compactHistory', 'if (estimateTokens(contents) < tokenBudget / 4) return undefined;', ''),
    tests: ['agent-tree'],
    only: 'compaction',
  },
  {
    name: 'dies of a connection that breaks while it is out of the pool',
    changes: change('ServerClient', "this.on('error', () => undefined);", ''),
    tests: ['connection-end'],
  },
  {
    name: 'repeats an append blindly',
    changes: change(
      'appendOnce',
      'if (error instanceof ConflictError && repeated) return findEventsById(db, lease.key, [event.id]);',
      '',
    ),
    ...LOST_REPLIES,
  },
  {
    name: 'does not repeat after a deadlock',
    changes: change('REPEATABLE', "new Set(['40001', '40P01', '55P03'])", 'new Set<string>()'),
    tests: ['sqlstates'],
  },
  ...CLIENT_MUTANTS,
  ...EVALUATION_MUTANTS,
  ...DELTA_MUTANTS,
  ...DOOR_MUTANTS,
  ...GOES_ON_MUTANTS,
  ...JOB_MUTANTS,
  ...METRIC_MUTANTS,
];
