import type { AgentNode } from '../../agent/definition/agent.ts';
import type { HookContext, Hooks } from '../../agent/definition/hooks.ts';
import { isOfAgentHook } from '../../agent/loop/hooks.ts';
import type { Differences } from './differences.ts';

/** The source of the answers of a replay. */
export interface ReplayModes {
  model: 'stored' | 'live';
  tools: 'stored' | 'live';
}

const OF_MODEL = ['beforeModel', 'afterModel', 'onError', 'beforeAgent', 'afterAgent'];
const OF_TOOLS = ['beforeTool', 'afterTool'];

/**
 * Returns the hooks of an agent for a replay: those around live models and tools run, what the others did is in the
 * stored events.
 */
export function toReplayHooks({ name, hooks = [] }: AgentNode, stored: Differences, modes: ReplayModes): Hooks[] {
  const left = [...(modes.model === 'stored' ? OF_MODEL : []), ...(modes.tools === 'stored' ? OF_TOOLS : [])];
  const modeOf = { input: modes.model, results: modes.tools };
  const live = hooks.map(({ guard, ...own }): Hooks => {
    const members = Object.entries(own).filter(([member]) => !left.includes(member));
    const at = guard?.at.filter((place) => modeOf[place] === 'live') ?? [];
    const kept = guard && at.length > 0 ? { guard: { ...guard, at } } : {};
    return { ...(Object.fromEntries(members) as Partial<Hooks>), ...kept, name: own.name };
  });
  if (modes.model === 'live') return live;
  const take = (kind: 'beforeAgent' | 'afterAgent', places: number) => (context: HookContext) => {
    const event = stored.peek(places, (one) => one.author === name && isOfAgentHook(one, kind));
    Object.assign(context.stateDelta, event?.actions?.stateDelta);
    return event?.content ?? undefined;
  };
  // The agent's last event is compared after its hook has run.
  return [{ name: 'replay', beforeAgent: take('beforeAgent', 1), afterAgent: take('afterAgent', 2) }, ...live];
}
