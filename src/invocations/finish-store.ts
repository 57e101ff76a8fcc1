import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { countUse, toUse, type Use } from '../conversation/budgets/budget-store.ts';
import type { ModelUse } from '../conversation/budgets/budget.ts';
import { LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeText, unescapeJson } from '../platform/db/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { assignments } from '../platform/db/sql.ts';
import { shapedStatement } from '../platform/db/statement.ts';
import {
  appendEventCtes,
  type EventAppend,
  givenEvents,
  newAppend,
  userOf,
} from '../conversation/sessions/append-events.ts';
import type { StoredEvent } from '../conversation/sessions/append-store.ts';
import { releasedSession } from '../conversation/sessions/session-lease.ts';
import { isInvocation } from './invocation-store.ts';
import type { InvocationError, InvocationStatus } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import { markKept, type TapeRow, tapeCtes, toTapeRow } from './tape-store.ts';
import type { Tape } from './tape.ts';

/** How an invocation ended, as its row keeps it. */
export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The answer as it is sent. */
  answer?: string | undefined;
  llmCalls?: number;
  toolCalls?: number;
  promptTokens?: number;
  outputTokens?: number;
  /** What model calls used that no statement has counted in the budgets yet. */
  uses?: readonly ModelUse[];
  /** What a replay needs to know beside the events. */
  tape?: Tape | undefined;
  /** True: whoever ran it is taken for dead, and must not take this end for its own should it wake up. */
  revokesToken?: boolean;
}

/**
 * Ends an invocation: last events, status and answer, and the session released, in one statement: whoever waits may
 * be notified of success after it.
 * @returns the events with their sequences. @throws {LeaseLostError} when the lease is another's; nothing was written
 * then.
 */
export async function finishInvocation(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  outcome: InvocationOutcome,
): Promise<StoredEvent[]> {
  const { tape, uses, ...how } = outcome;
  const [row] = await updateEnded(db, {
    lease,
    append: newAppend(db, lease.key, events, true),
    ending: toEnding(how),
    tape: tape && toTapeRow(db, lease.key, tape),
    use: toUse(0, uses ?? []),
  });
  if (!row) throw new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  markKept(db, lease.key, tape);
  const first = row.last - row.texts.length + 1;
  return row.texts.map((text, position) => ({ sequence: first + position, text: unescapeJson(text) }));
}

/** The end of an invocation as a statement takes it. */
type Ending = ReturnType<typeof toEnding>;

const toEnding = ({ status, error, answer, revokesToken, ...used }: Omit<InvocationOutcome, 'tape' | 'uses'>) => ({
  status,
  newToken: revokesToken === true ? randomUUID() : undefined,
  // The answer of a model is any text: PostgreSQL refuses U+0000 in one.
  answer: answer === undefined ? null : escapeText(answer),
  errorCode: error ? error.code : null,
  errorMessage: error ? escapeText(error.message) : null,
  llmCalls: used.llmCalls ?? 0,
  toolCalls: used.toolCalls ?? 0,
  promptTokens: used.promptTokens ?? 0,
  outputTokens: used.outputTokens ?? 0,
});

type Finish = { lease: Lease; append: EventAppend; ending: Ending; tape: TapeRow | undefined; use: Use | undefined };

const updateEnded = shapedStatement<Finish, { last: number; texts: string[] }>(
  ({ lease, append, ending, tape, use }, db) => sql`
    with ${givenEvents(append)},
    advanced as (${releasedSession(db, append, lease.token)}),
    ended as (
      update ${invocations} set ${ended(ending)} from advanced
      where ${isInvocation(lease)} and ${invocations.leaseToken} = ${lease.token})
    ${tapeCtes(lease, tape)}
    ${appendEventCtes(append)} ${countUse(lease.key, use)}
    select last_sequence as last, array(select payload::text from appended order by sequence) as texts from advanced`,
  userOf,
);

const ended = ({ status, newToken, answer, errorCode, errorMessage, ...used }: Ending) =>
  assignments(invocations, {
    status,
    leaseToken: newToken === undefined ? invocations.leaseToken : sql`${newToken}::uuid`,
    endTime: sql`greatest(${invocations.startTime}, statement_timestamp())`,
    responseBody: answer,
    errorCode,
    errorMessage,
    llmCalls: sql`${invocations.llmCalls} + ${used.llmCalls}`,
    toolCalls: sql`${invocations.toolCalls} + ${used.toolCalls}`,
    promptTokens: sql`${invocations.promptTokens} + ${used.promptTokens}`,
    outputTokens: sql`${invocations.outputTokens} + ${used.outputTokens}`,
  });
