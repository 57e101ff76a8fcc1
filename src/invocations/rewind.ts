import type { IdempotentRequest } from '../conversation/idempotency/idempotency.ts';
import { NotFoundError } from '../core/errors.ts';
import { USER_ARTIFACT_PREFIX } from '../conversation/artifacts/artifact.ts';
import { restoreArtifacts } from '../conversation/artifacts/copies.ts';
import { acquireSession } from './session-lock.ts';
import { finishOnce } from './persist.ts';
import type { Lease } from './lock-store.ts';
import type { JsonObject } from '../core/content.ts';
import { emptyActions, type Event, type NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import { findHistory } from '../conversation/sessions/history.ts';
import { findInitialState } from '../conversation/sessions/session-store.ts';
import type { InvocationContext } from './context.ts';
import { publishStops } from './cancel.ts';
import { forgetKey, requestStopOfAgents } from './invocation-store.ts';

/**
 * In a rewind an event tells models where the history continues; the session's own state is restored, and its artifacts
 * saved as new versions. No event is deleted; `user:` and `app:` state stays as it is. Agents of the turns that are taken
 * back end, and what they would have told is told to nobody.
 * @throws {NotFoundError} if the session or the invocation does not exist
 * @throws {BusyError} if the session stays busy
 */
export async function rewind(
  context: InvocationContext,
  key: SessionKey,
  invocationId: string,
  request: IdempotentRequest | undefined,
): Promise<string> {
  const { database, notifications, newId, leaseTimes, limits, stopping } = context;
  const lease: Lease = {
    key,
    invocationId: `p-${newId()}`,
    token: newId(),
    durationMs: leaseTimes.durationMs,
    request,
    isFree: true,
  };
  const claim = { lease, events: [], createSession: false, busyPolicy: context.busyPolicy, resumes: false };
  await acquireSession(context, { ...claim, times: leaseTimes, queueDepth: limits.queueDepth, signal: stopping });
  try {
    const { event, removed } = await rewindEvent(context, lease, invocationId);
    publishStops(notifications, await requestStopOfAgents(database.db, key, removed));
    const [stored] = await finishOnce(database.db, lease, [event], { status: 'succeeded' });
    return stored?.text ?? 'null';
  } catch (error) {
    await finishOnce(database.db, lease, [], { status: 'failed' });
    // The rewind changed nothing, so the idempotency key is freed for a retry.
    if (request) await forgetKey(database.db, key, lease.invocationId);
    throw error;
  }
}

async function rewindEvent(
  context: InvocationContext,
  lease: Lease,
  invocationId: string,
): Promise<{ event: NewEvent; removed: string[] }> {
  const { contentStore, newId } = context;
  const { db } = context.database;
  const { key } = lease;
  const history = (await findHistory(db, key))?.events ?? [];
  const from = history.findIndex((event) => event.invocationId === invocationId);
  if (from < 0) throw new NotFoundError(`Invocation not found: ${invocationId}`);
  const actions = {
    ...emptyActions(),
    stateDelta: stateBefore((await findInitialState(db, key)) ?? {}, history, from),
    artifactDelta: await restoreArtifacts({ db, contentStore }, key, lease.token, artifactsBefore(history, from)),
    rewindBeforeInvocationId: invocationId,
  };
  const event = { id: newId(), invocationId: lease.invocationId, author: 'user', nodeInfo: { path: '' }, actions };
  return { event, removed: [...new Set(history.slice(from).flatMap((each) => each.invocationId ?? []))] };
}

/** Returns the values that the changed state keys had before event `from`; `null` for keys that did not exist. */
function stateBefore(initial: JsonObject, history: Event[], from: number): JsonObject {
  const deltas = history.map((event) => Object.entries(event.actions?.stateDelta ?? {}));
  const before = new Map([...Object.entries(initial), ...deltas.slice(0, from).flat()]);
  const changed = deltas
    .slice(from)
    .flat()
    .filter(([name]) => !/^(app|user|temp):/.test(name));
  return Object.fromEntries(changed.map(([name]) => [name, before.get(name) ?? null]));
}

/** Returns the versions that the changed artifacts had before event `from`; `null` for artifacts that did not exist. */
function artifactsBefore(history: Event[], from: number): Record<string, number | null> {
  const saved = history.map((event) => Object.entries(event.actions?.artifactDelta ?? {}));
  const before = new Map(saved.slice(0, from).flat());
  const changed = saved.slice(from).flat();
  return Object.fromEntries(
    changed
      .filter(([name]) => !name.startsWith(USER_ARTIFACT_PREFIX))
      .map(([name]) => [name, before.has(name) ? Number(before.get(name)) : null]),
  );
}
