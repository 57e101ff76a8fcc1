import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';
import type { LiveRequest } from '../definition/live.ts';
import type { ToolServices } from '../definition/tool.ts';
import { buildContents } from './build-contents.ts';
import { renderInstruction } from './instruction.ts';

/**
 * Builds the set-up of a live session with an agent. It has the agent's tools but no tool for transfers: the connection
 * belongs to one agent.
 * @throws {AgentError} where the instruction cannot be filled in
 */
export async function toLiveRequest(
  agent: AgentNode,
  history: Event[],
  state: JsonObject,
  services: Pick<ToolServices, 'loadArtifact'>,
): Promise<Pick<LiveRequest, 'instruction' | 'contents' | 'tools' | 'sampling'>> {
  const instruction = await renderInstruction(agent.instruction, state, services);
  return {
    instruction: instruction + agent.appendedInstruction,
    contents: buildContents(history, { agentName: agent.name }),
    tools: agent.tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
    sampling: agent.sampling,
  };
}
