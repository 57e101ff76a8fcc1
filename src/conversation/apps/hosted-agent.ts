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

/** The rule of an application that remembers by itself, and the model that it may ask. */
export type Remember = NamedModel & { rule: NonNullable<MemorySettings['remember']> };

/** The model that makes vectors of memories, and their length [the model's]. */
export type Embedder = NamedModel & {
  dimensions?: number;
  /** The schema of the extension that compares vectors, once it was found. */
  schema?: string;
};

/** An application that this process serves. */
export interface HostedAgent {
  /** Author of events that the runtime itself writes for it. */
  name: string;
  /** The deployed version, which invocations name. */
  version: AgentVersion;
  /** True where its model has a live API: then live sessions may have sound and pictures. */
  hasLiveApi: boolean;
  /** True where a tool of its own is transactional. */
  hasTransactions?: boolean;
  /** Memory is searched by meaning too [by words alone]. */
  embedder?: Embedder | undefined;
  /** It remembers by itself, as its rule chooses [what clients add]. */
  remember?: Remember;
  /** Metrics of its own, and what masks sessions that become eval cases. */
  evals?: EvalModule;
  /**
   * Makes it ready for one invocation of a user. With `serverTools` no MCP server is contacted: it gives what
   * their tools are instead.
   * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer.
   */
  prepare(
    overrides: AgentOverrides,
    signal: AbortSignal,
    userId: string,
    serverTools?: ServerTools,
  ): Promise<PreparedAgent>;
  /** Loads its skills [it has none]. @throws {AgentError} for one that cannot be loaded */
  listSkills?: () => Promise<Skill[]>;
  /** Describes the agent for people. */
  describe(): AgentDescription;
}
