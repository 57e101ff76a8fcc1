import type { Load } from '../../platform/http/operation/operation.ts';
import type { Scope } from '../../platform/http/operation/principal.ts';

/** The scope that a call needs, and the class that it counts as. */
interface Deed {
  scope: Scope;
  load: Load;
}

/** What calls of doors do: whatever way one comes, it needs and counts as its deed. */
export const DEEDS = {
  /** Asks the agent, or answers what it waits for. */
  run: { scope: 'invoke', load: 'invoke' },
  /** Ends what runs. */
  cancel: { scope: 'invoke', load: 'write' },
  /** Says what can be asked. */
  offer: { scope: 'invoke', load: 'read' },
  /** Shows one small row, or what the operator has set up. */
  look: { scope: 'read', load: 'read' },
  /** Shows what was said or made, as much as there is. */
  read: { scope: 'read', load: 'heavy' },
  /** Makes or removes what belongs to a user. */
  change: { scope: 'write', load: 'write' },
} as const satisfies Record<string, Deed>;

/** What the methods of A2A do, over JSON-RPC and over HTTP. */
export const A2A_DEEDS = {
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
} as const satisfies Record<string, keyof typeof DEEDS>;
/** A method of A2A. */
export type A2aMethod = keyof typeof A2A_DEEDS;

/** What the methods of MCP do; those that are not here are of the protocol itself, or say what can be asked. */
export const MCP_DEEDS = {
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
} as const satisfies Record<string, keyof typeof DEEDS>;
