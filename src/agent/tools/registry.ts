import { AgentError } from '../../errors.ts';
import type { Tool } from '../tool.ts';
import { calculator } from './calculator.ts';
import { currentTime } from './current-time.ts';

/** The built-in tools by name; `now` is the clock they tell the time by. */
export function builtInTools(now?: () => Date): Map<string, Tool> {
  const tools = [currentTime(now), calculator];
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
