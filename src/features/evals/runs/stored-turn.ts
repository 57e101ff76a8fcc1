import { isDeepStrictEqual } from 'node:util';
import type { ServerTools } from '../../../agent/definition/agent.ts';
import { type AgentNode, runsUnattended, type Tool } from '../../../agent/definition/tool.ts';
import type { Model, ModelAnswer } from '../../../agent/definition/model.ts';
import { AgentError } from '../../../core/errors.ts';
import { type Content, getFunctionResponses, type JsonObject, getParts } from '../../../core/content.ts';
import type { ExecutionModes } from '../sets/eval-set.ts';
import { getCalls, getContents, getResponses, type Turn } from '../metrics/turn.ts';

interface StoredAnswer extends ModelAnswer {
  /** Name of the agent that gave the answer; undefined if the case does not contain the name. */
  author?: string | undefined;
}

interface AnsweredCall {
  id: string | undefined;
  name: string;
  args: JsonObject;
  response: JsonObject;
}

/** Tools that are called even if tool answers come from the case, because they have no effect outside the loop. */
const LOOP_TOOLS: ReadonlySet<string> = new Set(['exit_loop']);
const NO_ANSWER = 'The eval case has no stored answer to this call.';

/**
 * Replaces a model, tools, or both by the answers in a case's expected turn. An agent gets its own model answers in the
 * order of the case, each once; any agent may get the final response. A tool call gets the answer with the same call
 * id, otherwise the first unused answer to a call with equal name and arguments.
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

  wrap<Node extends AgentNode>(node: Node): Node {
    return {
      ...node,
      ...(this.#modes.modelExecutionMode === 'stored' ? { model: this.#toModel(node) } : {}),
      tools: node.tools.map((tool) => this.#toTool(tool)),
      subAgents: node.subAgents.map((agent) => this.wrap(agent)),
    };
  }

  /** Replaces the MCP servers, none of which may be contacted if tool answers come from the case. */
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
        // Yields no partial text: a stored answer is returned as a whole.
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
    // An agent as a tool would call its own model, so it answers from the case in either mode `stored`. So does a tool
    // that asks for confirmation if the model is stored, because no model has chosen the call now.
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

/** A turn's model answers, the final response last. ADK 1.x has no order, so all calls become one answer. */
function listAnswers({ intermediateData, finalResponse }: Turn): StoredAnswer[] {
  const contents = getContents(intermediateData).filter(({ content }) => getFunctionResponses(content).length === 0);
  const calls = intermediateData?.invocationEvents ? [] : getCalls(intermediateData);
  const callContent: Content = { role: 'model', parts: calls.map((functionCall) => ({ functionCall })) };
  const agentContents = intermediateData?.invocationEvents ? contents : [];
  return [
    ...(calls.length > 0 ? [{ content: callContent }] : []),
    ...agentContents.map(({ author, content }) => ({ author, content })),
    ...(getParts(finalResponse).length > 0 && finalResponse ? [{ content: finalResponse }] : []),
  ];
}

/** Pairs calls with answers: by call id, otherwise with the same tool's first answer that belongs to no other call. */
function pairCalls({ intermediateData }: Turn): AnsweredCall[] {
  const responses = [...getResponses(intermediateData)];
  const all = [...getCalls(intermediateData)];
  const ids = new Set(all.flatMap(({ id }) => id ?? []));
  return all.flatMap(({ id, name, args }): AnsweredCall[] => {
    const sameId = responses.findIndex((one) => id != null && one.id === id);
    const sameName = responses.findIndex((one) => one.name === name && !ids.has(one.id ?? ''));
    const [response] = sameId >= 0 || sameName >= 0 ? responses.splice(sameId >= 0 ? sameId : sameName, 1) : [];
    return response
      ? [{ id: id ?? undefined, name: name ?? '', args: args ?? {}, response: response.response ?? {} }]
      : [];
  });
}
