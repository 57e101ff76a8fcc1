import { isDeepStrictEqual } from 'node:util';
import type { AgentNode, ServerTools } from '../../../agent/definition/agent.ts';
import type { Model, ModelAnswer } from '../../../agent/definition/model.ts';
import { runsUnattended, type Tool } from '../../../agent/definition/tool.ts';
import { AgentError } from '../../../core/errors.ts';
import { type Content, getFunctionResponses, type JsonObject, getParts } from '../../../core/content.ts';
import type { ExecutionModes } from '../sets/eval-set.ts';
import { getCalls, getContents, getResponses, type Turn } from '../metrics/turn.ts';

/** An answer of a model of the turn. */
interface StoredAnswer extends ModelAnswer {
  /** The agent that said it; undefined where the case does not say. */
  author?: string | undefined;
}

/** A call of the turn with its answer. */
interface AnsweredCall {
  id: string | undefined;
  name: string;
  args: JsonObject;
  response: JsonObject;
}

/** Tools whose whole effect is on the loop that runs: nothing is stored of it, and nothing happens elsewhere. */
const LOOP_TOOLS: ReadonlySet<string> = new Set(['exit_loop']);
const NO_ANSWER = 'The eval case has no stored answer to this call.';

/**
 * The expected turn of a case in the place of a model, of tools, or of both. Each answer of a model is given once, in
 * the order of the case, to the agent that gave it; the final response to any agent that asks then. A call gets the
 * answer to its id, else to the first like it that is left.
 */
export class StoredTurn {
  readonly #modes: ExecutionModes;
  readonly #answers: StoredAnswer[];
  readonly #calls: AnsweredCall[];

  constructor(turn: Turn, modes: ExecutionModes) {
    this.#modes = modes;
    this.#answers = listAnswers(turn);
    this.#calls = pairCalls(turn);
  }

  /** The agent with models and tools of this turn. */
  wrap<Node extends AgentNode>(node: Node): Node {
    return {
      ...node,
      ...(this.#modes.modelExecutionMode === 'stored' ? { model: this.#toModel(node) } : {}),
      tools: node.tools.map((tool) => this.#toTool(tool)),
      subAgents: node.subAgents.map((agent) => this.wrap(agent)),
    };
  }

  /** The tools of MCP servers that the turn called: no server is contacted where their answers are stored. */
  get serverTools(): ServerTools | undefined {
    if (this.#modes.toolExecutionMode === 'live') return undefined;
    const names = [...new Set(this.#calls.map(({ name }) => name))];
    return (_agentName, servers) =>
      servers.length === 0 ? [] : names.map((name) => ({ ...UNKNOWN_TOOL, name, run: async () => undefined }));
  }

  #toModel(node: AgentNode): Model {
    const next = () => this.#next(node.name);
    return {
      provider: node.model.provider,
      async *generate() {
        // What is stored is not streamed.
        yield* [];
        return next();
      },
    };
  }

  #next(agentName: string): ModelAnswer {
    const place = this.#answers.findIndex(({ author }) => author === undefined || author === agentName);
    const [{ author: _author, ...answer } = { author: undefined, content: undefined }] =
      place < 0 ? [] : this.#answers.splice(place, 1);
    if (answer.content) return answer;
    throw new AgentError('model_failed', 'The eval case has no further answer of the model.');
  }

  #toTool(tool: Tool): Tool {
    // An agent that is a tool would ask its own model: it answers from the case where either is stored. So does a call
    // that a person decides on where no model has chosen it now.
    const { modelExecutionMode, toolExecutionMode } = this.#modes;
    const isOfCase = modelExecutionMode === 'stored' && !runsUnattended(tool);
    const isStored = toolExecutionMode === 'stored' || typeof tool.calls === 'object' || isOfCase;
    if (!isStored || LOOP_TOOLS.has(tool.name)) return tool;
    return {
      ...tool,
      run: async (args, { functionCallId }) => {
        const place = this.#findCall(functionCallId, tool.name, args);
        const [call] = place < 0 ? [] : this.#calls.splice(place, 1);
        if (call) return call.response;
        return tool.longRunning === true ? undefined : { error: NO_ANSWER };
      },
    };
  }

  #findCall(id: string, name: string, args: JsonObject): number {
    const place = this.#calls.findIndex((call) => call.id === id && call.name === name);
    if (place >= 0) return place;
    return this.#calls.findIndex((call) => call.name === name && isDeepStrictEqual(call.args, args));
  }
}

const UNKNOWN_TOOL = {
  description: '',
  parameters: { type: 'object' },
  needsConfirmation: false,
  calls: 'server' as const,
};

/** The answers of models, the final response last. ADK 1.x's form names no time: all calls are made at once. */
function listAnswers({ intermediateData, finalResponse }: Turn): StoredAnswer[] {
  const contents = getContents(intermediateData).filter(({ content }) => getFunctionResponses(content).length === 0);
  const calls = intermediateData?.invocationEvents ? [] : getCalls(intermediateData);
  const called: Content = { role: 'model', parts: calls.map((functionCall) => ({ functionCall })) };
  const said = intermediateData?.invocationEvents ? contents : [];
  return [
    ...(calls.length > 0 ? [{ content: called }] : []),
    ...said.map(({ author, content }) => ({ author, content })),
    ...(getParts(finalResponse).length > 0 && finalResponse ? [{ content: finalResponse }] : []),
  ];
}

/** The calls that have an answer: that of their id, else the first of their name that answers no other call. */
function pairCalls({ intermediateData }: Turn): AnsweredCall[] {
  const left = [...getResponses(intermediateData)];
  const all = [...getCalls(intermediateData)];
  const ids = new Set(all.flatMap(({ id }) => id ?? []));
  return all.flatMap(({ id, name, args }): AnsweredCall[] => {
    const own = left.findIndex((one) => id != null && one.id === id);
    const like = left.findIndex((one) => one.name === name && !ids.has(one.id ?? ''));
    const [found] = own >= 0 || like >= 0 ? left.splice(own >= 0 ? own : like, 1) : [];
    return found ? [{ id: id ?? undefined, name: name ?? '', args: args ?? {}, response: found.response ?? {} }] : [];
  });
}
