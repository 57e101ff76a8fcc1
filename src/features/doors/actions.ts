import type { Load } from '../../platform/http/operation/operation.ts';
import type { Scope } from '../../platform/http/operation/principal.ts';

/** The scope that an action requires, and the rate class that it is charged to. */
interface Action {
  scope: Scope;
  load: Load;
}

/** Actions of the protocol doors: an action needs the same scope and costs the same over every transport. */
export const ACTIONS = {
  /** Runs an agent, or answers a call that it waits for. */
  run: { scope: 'invoke', load: 'invoke' },
  cancel: { scope: 'invoke', load: 'write' },
  offer: { scope: 'invoke', load: 'read' },
  /** Reads one small row, or the operator's settings. */
  look: { scope: 'read', load: 'read' },
  /** Reads content of any size: events, messages, artifacts. */
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

/** An MCP method that is not listed counts as `offer`: it belongs to the protocol itself, or lists tools. */
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
