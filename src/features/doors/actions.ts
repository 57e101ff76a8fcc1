import { requireScope } from '../../platform/http/access/authorize.ts';
import type { Call, Load } from '../../platform/http/operation/operation.ts';
import type { Scope } from '../../platform/http/operation/principal.ts';

interface Action {
  scope: Scope;
  load: Load;
}

/** What a client of A2A or MCP can do: scope and rate limit are the same over every transport of its protocol. */
export const ACTIONS = {
  /** Runs an agent, or answers a call that it waits for. */
  run: { scope: 'invoke', load: 'invoke' },
  cancel: { scope: 'invoke', load: 'write' },
  offer: { scope: 'invoke', load: 'read' },
  /** Operations that read little data: one small row, or settings of the operator. */
  look: { scope: 'read', load: 'read' },
  /** Operations that read content of any size: events, messages, artifacts. */
  read: { scope: 'read', load: 'heavy' },
  change: { scope: 'write', load: 'write' },
} as const satisfies Record<string, Action>;

export const A2A_ACTIONS = {
  SendMessage: 'run',
  SendStreamingMessage: 'run',
  GetTask: 'read',
  ListTasks: 'read',
  CancelTask: 'cancel',
  SubscribeToTask: 'read',
  CreateTaskPushNotificationConfig: 'change',
  GetTaskPushNotificationConfig: 'look',
  ListTaskPushNotificationConfigs: 'look',
  DeleteTaskPushNotificationConfig: 'change',
  GetExtendedAgentCard: 'look',
} as const satisfies Record<string, keyof typeof ACTIONS>;
export type A2aMethod = keyof typeof A2A_ACTIONS;

/** Actions by MCP method. A missing method counts as `offer`, because it belongs to the protocol itself. */
export const MCP_ACTIONS = {
  'tools/list': 'offer',
  'tools/call': 'run',
  'resources/list': 'read',
  'resources/read': 'read',
  'resources/templates/list': 'look',
  'prompts/list': 'look',
  'prompts/get': 'look',
  'tasks/get': 'read',
  'tasks/update': 'run',
  'tasks/cancel': 'cancel',
} as const satisfies Record<string, keyof typeof ACTIONS>;

/**
 * Checks the scope of an action, and counts it. The route has counted the request as a small read.
 * @throws {ForbiddenError} @throws {LimitError}
 */
export async function admitAction(
  action: keyof typeof ACTIONS,
  { principal, countAgain }: Pick<Call<never, never, never, never>, 'principal' | 'countAgain'>,
): Promise<void> {
  const { scope, load } = ACTIONS[action];
  requireScope(principal, { scope, because: 'this method needs it.' });
  if (load !== 'read') await countAgain(load);
}
