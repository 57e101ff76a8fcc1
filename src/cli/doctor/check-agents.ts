import type { Config } from '../../config/config.ts';
import { hostAgents, readHarnessAgent } from '../../process/host-agents.ts';
import { fault, type Finding, ok, reasonOf } from './finding.ts';

/** Every agent made ready as for an invocation: its tools and skills are there, its MCP servers answer. */
export async function checkAgents(config: Config): Promise<Finding[]> {
  const { signal } = new AbortController();
  try {
    const agents = await hostAgents({ ...config, MCP_ON_FAILURE: 'fail' });
    const { definition: harness } = await readHarnessAgent(config);
    const findings: Finding[] = [];
    for (const [name, agent] of agents) {
      // One at a time, so that each server that is away is named.
      const servers = name === harness.name ? harness.mcpServers.map((server) => [server]) : [undefined];
      for (const mcpServers of servers) {
        const overrides = mcpServers ? { mcpServers } : {};
        const failure = await agent.prepare(overrides, signal, 'doctor').then(
          (prepared) => prepared.close(),
          (error: unknown) => reasonOf(error),
        );
        if (failure) findings.push(fault('agents', `${name}: ${failure} See MCP_SERVERS, or the file of the agent.`));
      }
    }
    return findings.length > 0 ? findings : [ok('agents', [...agents.keys()].join(', '))];
  } catch (error) {
    return [fault('agents', reasonOf(error))];
  }
}
