import type { AgentOverrides, MemorySettings, PreparedAgent, ServerTools } from '../../agent/definition/agent.ts';
import type { NamedModel } from '../../agent/definition/tool.ts';
import type { EvalModule } from '../../agent/definition/agent-module.ts';
import type { Skill } from '../../agent/skills.ts';
import type { AgentDescription } from './agent-description.ts';
import type { AgentVersion } from './agent-version.ts';

/** The rule for adding to users' memory without a request, and the model that the rule may ask. */
export type Remember = NamedModel & { rule: NonNullable<MemorySettings['remember']> };

/** The model that computes embeddings of memories. `dimensions`: length of its vectors; default: the model's own. */
export type Embedder = NamedModel & {
  dimensions?: number;
  /** The database schema of the pgvector extension; set after start-up has found the extension. */
  schema?: string;
};

export interface HostedAgent {
  /** Author name of the events that the runtime writes on the agent's behalf. */
  name: string;
  /** The deployed version; invocations store its digest. */
  version: AgentVersion;
  /** True if the agent's model has a live API, so that live sessions may carry audio and images. */
  hasLiveApi: boolean;
  /** True if one of the agent's own tools is transactional. */
  hasTransactions?: boolean;
  /** The embedding model, set if memory is searched by meaning as well as by words. */
  embedder?: Embedder | undefined;
  /** Set if the application adds to memory by itself; otherwise only clients add memories. */
  remember?: Remember;
  /** The agent's own evaluation metrics, and the masking of sessions that become evaluation cases. */
  evals?: EvalModule;
  /**
   * @param serverTools - descriptions of MCP tools; if given, no MCP server is contacted
   * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer
   */
  prepare(
    overrides: AgentOverrides,
    signal: AbortSignal,
    userId: string,
    serverTools?: ServerTools,
  ): Promise<PreparedAgent>;
  /** Loads the agent's skills; absent if the agent has none. @throws {AgentError} if a skill cannot be loaded */
  listSkills?: () => Promise<Skill[]>;
  describe(): AgentDescription;
}
