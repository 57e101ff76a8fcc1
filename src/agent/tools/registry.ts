import { AgentError } from '../../core/errors.ts';
import type { EgressPolicy } from '../../platform/net/egress.ts';
import type { Tool } from '../definition/tool.ts';
import { listArtifacts, loadArtifacts, saveArtifact } from './artifacts.ts';
import { getUserChoice, requestInput } from './ask-user.ts';
import { calculator } from './calculator.ts';
import { currentTime } from './current-time.ts';
import { exitLoop } from './exit-loop.ts';
import { loadMemory } from './load-memory.ts';
import { readState, writeState } from './state.ts';
import { webFetch } from './web-fetch.ts';

/** Settings of the built-in tools. */
export interface ToolSettings {
  /** The clock [the system's]. */
  now?: () => Date;
  /** Addresses that `web_fetch` may reach [public addresses by https]. */
  egress?: EgressPolicy;
}

/** The built-in tools by name. */
export function builtInTools({ now, egress = { allowLoopback: false } }: ToolSettings = {}): Map<string, Tool> {
  const tools = [
    currentTime(now),
    calculator,
    webFetch(egress),
    loadMemory,
    saveArtifact,
    loadArtifacts,
    listArtifacts,
    getUserChoice,
    requestInput,
    readState,
    writeState,
    exitLoop,
  ];
  return new Map(tools.map((tool) => [tool.name, tool]));
}

/**
 * The tools with these names, in order, each once.
 * @throws {AgentError} `unknown_tool` for the first name that does not exist, with the text of VeADK's harness.
 */
export function findTools(known: ReadonlyMap<string, Tool>, names: string[]): Tool[] {
  return [...new Set(names)].map((name) => {
    const tool = known.get(name);
    if (tool) return tool;
    const available = [...known.keys()].sort().join(', ');
    throw new AgentError('unknown_tool', `Tool \`${name}\` is not a supported built-in tool. Available: ${available}`);
  });
}
