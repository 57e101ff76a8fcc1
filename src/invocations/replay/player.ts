import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { AgentNode } from '../../agent/definition/agent.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../../agent/definition/model.ts';
import type { Tool, ToolServices } from '../../agent/definition/tool.ts';
import { SUMMARY_INSTRUCTION, SUMMARY_START } from '../../agent/loop/compact.ts';
import { type ObservedAgent, type ObservedStep, type RunObserver, UNOBSERVED } from '../../agent/loop/run.ts';
import { SIBLING_FAILED } from '../../agent/loop/run-agent.ts';
import { toErrorCode } from '../../core/error-codes.ts';
import { AgentError } from '../../core/errors.ts';
import { getAnswerText, getFunctionCalls, type JsonObject } from '../../core/content.ts';
import type { ReservedCall } from '../../conversation/budgets/reserve-call.ts';
import type { Event } from '../../core/event.ts';
import { askedAgentDifference, getCalls, requestDifference } from './check-request.ts';
import { Differences } from './differences.ts';
import { type ReplayModes, toReplayHooks } from './replay-hooks.ts';
import { StoredAnswers, type ToolRun } from './stored-answers.ts';
import { isFailure, isOfModel, type StoredEvent, type TapeRun, toModelAnswer } from './tape-run.ts';

/** A live call whose use is reserved, and counted behind it. */
export type LiveCall = Pick<ReservedCall, 'request' | 'end'> & { count(answer: ModelAnswer): Promise<unknown> };

/** The inputs of the replay of one run. */
interface PlayerOptions extends ReplayModes {
  run: TapeRun;
  firstPlace: number;
  /** The state at the run's start; changes by its events are added. */
  state: JsonObject;
  services: ToolServices;
  /** Maximum of live model calls. */
  maxLiveCalls: number;
  /** Reserves a live call; the sentence of a budget that has less left than it may use. */
  reserve: (request: ModelRequest) => Promise<LiveCall | string>;
}

/** Codes of what ends an invocation from outside of the loop. */
const ABORTS: ReadonlySet<string> = new Set(
  'cancelled interrupted time_limit tool_calls_limit budget_exceeded'.split(' '),
);
/** How often an answer looks for the events before it, until it takes the order for another one: turns, then ms. */
const IDLE_TURNS = 50;
const IDLE_SLEEPS = 100;

const isStoppedBySibling = (event: Event) => event.errorCode === 'interrupted' && event.errorMessage === SIBLING_FAILED;
const isAborted = ({ errorCode }: Event) => ABORTS.has(errorCode ?? '');

/** Never settles; a signal ends those who wait for it. */
const forever = <Result>() => new Promise<Result>(() => undefined);

/** Gives models and tools of an agent the answers of a stored run, and compares the new events with the stored. */
export class Player implements RunObserver {
  readonly differences: Differences;
  /** The reason why the replay cannot go on; `undefined` while it can. */
  stopped: string | undefined;
  /** True once the loop came to where the runtime ended the stored run. */
  isAtEnding = false;
  liveModelCalls = 0;
  liveToolCalls = 0;
  /** Text of the last event that has any. */
  output = '';
  /** Ends the loop. */
  readonly #ending = new AbortController();
  readonly #options: PlayerOptions;
  readonly #answers: StoredAnswers;
  readonly #models = new Map<string, StoredEvent[]>();
  readonly #asked = new Map<string, number>();
  readonly #agents = new WeakMap<ModelRequest, ObservedAgent>();
  readonly #isParallel: boolean;

  constructor(options: PlayerOptions) {
    const { run, firstPlace } = options;
    this.#options = options;
    this.differences = new Differences(run, firstPlace);
    this.#answers = new StoredAnswers(run);
    this.#isParallel = new Set(run.events.map(({ event }) => event.branch ?? '')).size > 1;
    for (const stored of run.events) {
      const { author = '' } = stored.event;
      if (isOfModel(stored.event)) this.#models.set(author ?? '', [...(this.#models.get(author ?? '') ?? []), stored]);
    }
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** The agent with models and tools of this replay. */
  wrap<Node extends AgentNode>(node: Node): Node {
    const names = new Set<string>();
    const tools = node.tools.filter(({ name }) => !names.has(name) && names.add(name));
    return {
      ...node,
      model: this.#toModel(node),
      fallbacks: [],
      ...(node.hooks && { hooks: toReplayHooks(node, this.differences, this.#options) }),
      tools: tools.map((tool) => this.#toTool(tool)),
      subAgents: node.subAgents.map((agent) => this.wrap(agent)),
    };
  }

  modelCall(agent: ObservedAgent, request: ModelRequest): ObservedStep<unknown> {
    this.#agents.set(request, agent);
    return UNOBSERVED;
  }

  toolCall(): ObservedStep<unknown> {
    return UNOBSERVED;
  }

  event(): void {
    // The caller takes events when the loop hands them out.
  }

  /** Compares an event that the loop, or the runtime after it, made. */
  take(event: Event): void {
    this.differences.take(event);
    Object.assign(this.#options.state, event.actions?.stateDelta);
    const text = getAnswerText(event.content);
    if (text !== '') this.output = text;
    // As in the stored run, its limit of tool calls ends it before the tools run.
    const first = getFunctionCalls(event.content)[0]?.id ?? '';
    const answer = this.#answers.find(first)?.stored.event;
    if (answer?.errorCode === 'tool_calls_limit' && this.#isStoredOnly) this.#abort(answer);
  }

  /** Ends the loop because the tape has no more to say. */
  stop(reason: string): AgentError {
    this.stopped ??= reason;
    const error = new AgentError('interrupted', reason);
    this.#ending.abort(error);
    return error;
  }

  get #isStoredOnly(): boolean {
    return this.#options.model === 'stored' && this.#options.tools === 'stored';
  }

  #abort({ errorCode, errorMessage }: Event): void {
    this.#ending.abort(new AgentError(toErrorCode(errorCode ?? ''), errorMessage ?? ''));
  }

  #toModel(node: AgentNode): Model {
    const ask = (request: ModelRequest) => this.#ask(node, request);
    const stop = (reason: string) => this.stop(reason);
    const { reserve } = this.#options;
    return {
      provider: node.model.provider,
      async *generate(request): AsyncGenerator<ModelDelta, ModelAnswer, void> {
        const answer = await ask(request);
        if (answer !== 'live') return answer;
        const reserved = await reserve(request);
        if (typeof reserved === 'string') throw stop(reserved);
        try {
          const live = yield* node.model.generate(reserved.request);
          await reserved.count(live);
          return live;
        } finally {
          reserved.end();
        }
      },
    };
  }

  async #ask({ name }: AgentNode, request: ModelRequest): Promise<ModelAnswer | 'live'> {
    const { model, maxLiveCalls } = this.#options;
    if (request.instruction === SUMMARY_INSTRUCTION) return this.#summarise();
    const index = this.#asked.get(name) ?? 0;
    this.#asked.set(name, index + 1);
    const stored = this.#models.get(name)?.[index];
    await this.#checkRequest(name, index, request, stored);
    if (model === 'stored') return this.#answer(stored);
    if (this.liveModelCalls >= maxLiveCalls) {
      throw this.stop(`The live model was called ${maxLiveCalls} times, which is the maximum of this replay.`);
    }
    this.liveModelCalls += 1;
    return 'live';
  }

  /** A summary is made once: also a live model gets the history as it was. */
  #summarise(): ModelAnswer {
    const stored = this.#options.run.events.find(({ event }) => event.actions?.compaction)?.event;
    const text = getAnswerText(stored?.actions?.compaction?.compactedContent);
    if (text === '') throw new Error('The stored run has no summary.');
    return { content: { role: 'model', parts: [{ text: text.slice(SUMMARY_START.length) }] } };
  }

  async #checkRequest(
    agentName: string,
    index: number,
    request: ModelRequest,
    stored: StoredEvent | undefined,
  ): Promise<void> {
    const { tape } = this.#options.run;
    const agent = this.#agents.get(request);
    if (!tape || !agent) return;
    const made = getCalls(tape, agentName)[index];
    if (made) {
      const found = await requestDifference(tape, made, { agent, request, ...this.#options });
      if (found) this.differences.noteRequest(stored, found);
    } else if (stored && !this.#mayBeUnseen(stored.event)) {
      const after = { agent: agentName, contents: request.contents.length };
      this.differences.noteRequest(stored, { path: '/request', before: null, after });
    }
  }

  /** Agents that are tools count as model calls too, and are not run again: the limit may have been theirs. */
  #mayBeUnseen({ errorCode }: Event): boolean {
    return errorCode === 'llm_calls_limit' || isAborted({ errorCode });
  }

  async #answer(stored: StoredEvent | undefined): Promise<ModelAnswer> {
    if (!stored) throw this.#isOver() ?? this.stop('The tape has no further answer of the model.');
    const { event } = stored;
    if (isFailure(event) && isStoppedBySibling(event)) return forever();
    await this.#turnOf(stored);
    if (isFailure(event)) {
      if (!isAborted(event)) throw new AgentError(toErrorCode(event.errorCode ?? ''), event.errorMessage ?? '');
      this.#abort(event);
      return forever();
    }
    return toModelAnswer(event);
  }

  /** Where the runtime ended the stored run, the loop ends here; `undefined` where it did not. */
  #isOver(): AgentError | undefined {
    const last = this.#options.run.ending.at(-1)?.event;
    if (!last) return undefined;
    this.isAtEnding = true;
    this.#abort(last);
    return new AgentError(toErrorCode(last.errorCode ?? ''), last.errorMessage ?? '');
  }

  #toTool(tool: Tool): Tool {
    const isLive = this.#options.tools === 'live' && typeof tool.calls !== 'object';
    return {
      ...tool,
      run: async (args, context) => {
        if (!isLive) return this.#answerCall(tool, args, context);
        this.liveToolCalls += 1;
        return tool.run(args, context);
      },
    };
  }

  async #answerCall(tool: Tool, args: JsonObject, context: Parameters<Tool['run']>[1]): Promise<unknown> {
    const isSameModel = this.#options.model === 'stored';
    const call: ToolRun = { id: context.functionCallId, name: tool.name, args };
    const found = isSameModel ? this.#answers.find(call.id) : this.#answers.findLike(call);
    if (!found) return this.#openCall(tool, call);
    if (this.#options.run.ending.includes(found.stored)) return this.#isOver() ?? forever();
    await this.#turnOf(found.stored);
    this.#checkAskedAgent(tool, found.stored);
    const { event } = found.stored;
    const { response } = found.part.functionResponse ?? {};
    if (event.errorCode && response?.['error'] === 'interrupted' && isSameModel) {
      if (isStoppedBySibling(event)) return forever();
      // The calls of this step that were answered are so first.
      await nextTurn();
      this.#abort(event);
      return forever();
    }
    const { actions, attachments } = this.#answers.effectsOf(found, call.id);
    Object.assign(context.actions, actions);
    context.attachments.push(...attachments);
    return response ?? {};
  }

  #checkAskedAgent({ calls }: Tool, stored: StoredEvent): void {
    const { tape } = this.#options.run;
    const found = tape && typeof calls === 'object' ? askedAgentDifference(tape, calls) : undefined;
    if (found) this.differences.noteRequest(stored, found);
  }

  /** A call that the tape has no answer to: one that was left open, or one that the stored run did not make. */
  #openCall(tool: Tool, { id, name }: ToolRun): undefined | Promise<never> {
    const wasOpen = this.#options.run.events.some(({ event }) => event.longRunningToolIds?.includes(id));
    if (wasOpen || tool.longRunning === true) return undefined;
    const over = this.#options.model === 'stored' ? this.#isOver() : undefined;
    throw over ?? this.stop(`The tape has no answer to this call of \`${name}\`.`);
  }

  /** Settles when the events before a stored one have come, as far as agents that run side by side make them. */
  async #turnOf({ place }: StoredEvent): Promise<void> {
    if (!this.#isParallel || !this.#isStoredOnly) return;
    const isEarlier = () => (this.differences.next((event) => !isStoppedBySibling(event))?.place ?? place) < place;
    for (let idle = 0; idle < IDLE_TURNS + IDLE_SLEEPS && isEarlier(); idle += 1) {
      const before = this.differences.compared;
      await (idle < IDLE_TURNS ? nextTurn() : sleep(1));
      if (this.differences.compared !== before) idle = 0;
    }
  }
}
