import type { AgentNode } from '../../agent/definition/agent.ts';
import { type HookContext, type HookedFailure, HOOKS, type Hooks } from '../../agent/definition/hooks.ts';
import { isOfAgentHook } from '../../agent/loop/hooks.ts';
import type { Differences } from './differences.ts';

/** Whether a replay uses stored or live replies of models, and stored or live responses of tools. */
export interface ReplayModes {
  model: 'stored' | 'live';
  tools: 'stored' | 'live';
}

const OF_TOOLS: readonly string[] = ['beforeTool', 'afterTool'];

/** True if the model or tool that a hook wraps is live. Hooks for errors wrap both and are treated separately. */
const isRun = (kind: (typeof HOOKS)[number], { model, tools }: ReplayModes): boolean =>
  kind !== 'onError' && (OF_TOOLS.includes(kind) ? tools : model) === 'live';

/** True if a replay does not run a hook of the agent, so that a change of that hook stays unnoticed. */
export const leavesHooksOut = ({ hooks = [] }: AgentNode, modes: ReplayModes): boolean =>
  hooks.some((own) => HOOKS.some((kind) => own[kind] && !isRun(kind, modes)));

/** Only hooks around live models and tools run; the effects of all others are in the stored events. */
export function toReplayHooks({ name, hooks = [] }: AgentNode, stored: Differences, modes: ReplayModes): Hooks[] {
  const modeOf = { input: modes.model, results: modes.tools };
  const live = hooks.map((own): Hooks => {
    const kinds = HOOKS.filter((kind) => own[kind] && isRun(kind, modes));
    const members = Object.fromEntries(kinds.map((kind) => [kind, own[kind]?.bind(own)])) as Partial<Hooks>;
    const onError = (failure: HookedFailure, context: HookContext) =>
      modes[failure.during === 'model' ? 'model' : 'tools'] === 'live' ? own.onError?.(failure, context) : undefined;
    const { timeoutMs, passesText, guard } = own;
    const at = guard?.at.filter((place) => modeOf[place] === 'live') ?? [];
    return {
      ...members,
      ...(guard && at.length > 0 && { guard: { ...guard, at } }),
      ...(own.onError && { onError }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(passesText !== undefined && { passesText }),
      name: own.name,
    };
  });
  if (modes.model === 'live') return live;
  const take = (kind: 'beforeAgent' | 'afterAgent', places: number) => (context: HookContext) => {
    const event = stored.peek(places, (one) => one.author === name && isOfAgentHook(one, kind));
    Object.assign(context.stateDelta, event?.actions?.stateDelta);
    return event?.content ?? undefined;
  };
  // The agent's last event is compared after this hook has run, so also search one event further.
  return [{ name: 'replay', beforeAgent: take('beforeAgent', 1), afterAgent: take('afterAgent', 2) }, ...live];
}
