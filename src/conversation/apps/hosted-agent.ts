import type {
  AgentOverrides,
  MemorySettings,
  NamedModel,
  PreparedAgent,
  ServerTools,
} from '../../agent/definition/agent.ts';
import type { EvalModule } from '../../agent/definition/eval-module.ts';
import type { Skill } from '../../agent/skills.ts';
import type { AgentDescription } from './agent-description.ts';
import type { AgentVersion } from './agent-version.ts';

/** The rule by which an application remembers on its own, and the model that may judge it. */
export type Remember = NamedModel & { rule: NonNullable<MemorySettings['remember']> };

/** The model that embeds memories; default `dimensions`: the model's. */
export type Embedder = NamedModel & {
  dimensions?: number;
  /** The schema of the pgvector extension; set once it was found. */
  schema?: string;
};

export interface HostedAgent {
  /** Author of events that the runtime writes on its behalf. */
  name: string;
  /** The deployed version; invocations refer to it. */
  version: AgentVersion;
  /** True if its model has a live API; then live sessions may carry audio and images. */
  hasLiveApi: boolean;
  /** True if one of its own tools is transactional. */
  hasTransactions?: boolean;
  /** Set if memory is also searched by meaning; otherwise by words only. */
  embedder?: Embedder | undefined;
  /** Set if the application remembers on its own; otherwise clients add memories. */
  remember?: Remember;
  /** Its own metrics, and the masking of sessions that become eval cases. */
  evals?: EvalModule;
  /**
   * Prepares the agent for one invocation of a user.
   * @param serverTools - descriptions of MCP tools; if given, no MCP server is contacted
   * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer
   */
  prepare(
    overrides: AgentOverrides,
    signal: AbortSignal,
    userId: string,
    serverTools?: ServerTools,
  ): Promise<PreparedAgent>;
  /** Loads the agent's skills; absent if it has none. @throws {AgentError} if one cannot be loaded */
  listSkills?: () => Promise<Skill[]>;
  describe(): AgentDescription;
}
