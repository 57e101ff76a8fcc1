import type { IdempotentRequest } from '../conversation/idempotency/operations.ts';
import { NotFoundError } from '../core/errors.ts';
import { USER_ARTIFACT_PREFIX } from '../conversation/artifacts/artifact-content.ts';
import { acquireSession } from './session-lock.ts';
import { finishOnce } from './persist.ts';
import type { Lease } from './lock-store.ts';
import type { JsonObject } from '../core/content.ts';
import type { Event, NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import { findHistory } from '../conversation/sessions/history-store.ts';
import type { ToolServices } from '../agent/definition/tool.ts';
import type { InvocationContext } from './context.ts';
import { forgetKey } from './invocation-store.ts';
import { newToolServices } from './tool-services.ts';

/**
 * Takes a session back to before an invocation: one event says so, restores the session's own state keys and saves
 * the artifacts as they were as new versions. Events stay; models no longer see what was rewound. `user:` and `app:`
 * scopes are not touched.
 * @throws {NotFoundError} when the session or the invocation does not exist. @throws {BusyError} when the session
 * stays busy.
 */
export async function rewind(
  context: InvocationContext,
  key: SessionKey,
  invocationId: string,
  request: IdempotentRequest | undefined,
): Promise<string> {
  const { database, newId, leaseTimes, limits, stopping } = context;
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
    const event = await rewindEvent(context, lease, invocationId);
    const [stored] = await finishOnce(database.db, lease, [event], { status: 'succeeded' });
    return stored?.text ?? 'null';
  } catch (error) {
    await finishOnce(database.db, lease, [], { status: 'failed' });
    // Nothing was done, so the key is free for another try.
    if (request) await forgetKey(database.db, key, lease.invocationId);
    throw error;
  }
}

async function rewindEvent(context: InvocationContext, lease: Lease, invocationId: string): Promise<NewEvent> {
  const { database, newId } = context;
  const { key } = lease;
  const history = (await findHistory(database.db, key))?.events ?? [];
  const from = history.findIndex((event) => event.invocationId === invocationId);
  if (from < 0) throw new NotFoundError(`Invocation not found: ${invocationId}`);
  const actions = {
    stateDelta: stateBefore(history, from),
    artifactDelta: await restoreArtifacts(newToolServices(context, lease), history, from),
    requestedAuthConfigs: {},
    requestedToolConfirmations: {},
    rewindBeforeInvocationId: invocationId,
  };
  return { id: newId(), invocationId: lease.invocationId, author: 'user', nodeInfo: { path: '' }, actions };
}

/** Returns the values before `from` of the keys that changed from there on, as the events tell; `null` for none. */
function stateBefore(history: Event[], from: number): JsonObject {
  const deltas = history.map((event) => Object.entries(event.actions?.stateDelta ?? {}));
  const before = new Map(deltas.slice(0, from).flat());
  const changed = deltas
    .slice(from)
    .flat()
    .filter(([name]) => !/^(app|user|temp):/.test(name));
  return Object.fromEntries(changed.map(([name]) => [name, before.get(name) ?? null]));
}

/** Saves the artifacts changed from `from` on as they were before; one that did not exist becomes empty, as in ADK. */
async function restoreArtifacts(services: ToolServices, history: Event[], from: number): Promise<JsonObject> {
  const saved = history.map((event) => Object.entries(event.actions?.artifactDelta ?? {}));
  const before = new Map(saved.slice(0, from).flat());
  const changed = new Set(
    saved
      .slice(from)
      .flat()
      .map(([name]) => name),
  );
  const restored: JsonObject = {};
  for (const name of changed) {
    if (name.startsWith(USER_ARTIFACT_PREFIX)) continue;
    const part = before.has(name) ? await services.loadArtifact(name, Number(before.get(name))) : undefined;
    const empty = { inlineData: { data: '', mimeType: 'application/octet-stream' } };
    restored[name] = await services.saveArtifact(name, part ?? empty);
  }
  return restored;
}
