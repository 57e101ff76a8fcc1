import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { type AgentNode, runsUnattended, type Tool } from '../../agent/definition/tool.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../../agent/definition/model.ts';
import type { ToolServices } from '../../agent/definition/services.ts';
import type { CompactionSettings, PreparedAgent } from '../../agent/definition/agent.ts';
import { dropsResults, getCompactionNotes } from '../../agent/loop/build-contents.ts';
import { SUMMARY_INSTRUCTION, SUMMARY_START } from '../../agent/loop/compact.ts';
import type { ObservedAgent } from '../../agent/loop/run.ts';
import { getBreak, type PrefixBreak } from '../../agent/loop/prefix.ts';
import { SIBLING_FAILED } from '../../agent/loop/run-agent.ts';
import { toErrorCode } from '../../core/error-codes.ts';
import { AgentError } from '../../core/errors.ts';
import { getAnswerText, getFunctionCalls, type JsonObject } from '../../core/content.ts';
import type { ReservedCall } from '../../conversation/budgets/reserve-call.ts';
import type { Event } from '../../core/event.ts';
import { MAX_CALLS } from '../tape.ts';
import { toolAgentDifference, getCalls, requestDifference } from './check-request.ts';
import { Differences } from './differences.ts';
import { StoredAnswers, type ToolRun, isFailure, type TapeRun, toModelAnswer } from './tape-run.ts';
import { type HookContext, type HookedFailure, HOOKS, type Hooks } from '../../agent/definition/hooks.ts';
import { isMadeBy, Script, type Step } from '../../agent/loop/script.ts';

/** A live model call with its reserved tokens. After the call, the tokens it used are charged. */
export type LiveCall = Pick<ReservedCall, 'request' | 'end'> & { count(answer: ModelAnswer): Promise<unknown> };

interface PlayerOptions extends ReplayModes {
  run: TapeRun;
  firstPlace: number;
  /** The session state when the run began. Each event of the replay updates it. */
  state: JsonObject;
  services: ToolServices;
  /** Ids of the calls that people confirmed or responded to, see {@link listAttendedCalls}. */
  attendedCalls: ReadonlySet<string>;
  maxLiveCalls: number;
  /** Reserves a live model call, or returns the reason if a budget has too few tokens left. */
  reserve: (request: ModelRequest) => Promise<LiveCall | string>;
}

/** Error codes with which an invocation ends from outside the loop. */
const ABORTS: ReadonlySet<string> = new Set(
  'cancelled interrupted time_limit tool_calls_limit budget_exceeded'.split(' '),
);
/** How long a stored reply waits for earlier events, in event-loop turns, then milliseconds; then any order counts. */
const IDLE_TURNS = 50;
const IDLE_SLEEPS = 100;

const NO_TAPE = 'Nothing is kept of what its models were given: a changed instruction or tool shows in events only.';

const isStoppedBySibling = (event: Event) => event.errorCode === 'interrupted' && event.errorMessage === SIBLING_FAILED;
const isAborted = ({ errorCode }: Event) => ABORTS.has(errorCode ?? '');

/** A promise that never settles, for calls that end by an abort signal. */
const forever = <Result>() => new Promise<Result>(() => undefined);

interface MadeCall {
  /** The event that this call produced in the stored run. */
  stored: Step | undefined;
  compared: Promise<void>;
}

/** Gives models and tools their stored replies, and compares the new events with the stored ones. */
export class Player {
  readonly differences: Differences;
  /** Why the replay stopped early; `undefined` while it runs. */
  stopped: string | undefined;
  /** True after the loop has reached the point where the runtime, not the loop, ended the stored run. */
  isAtEnding = false;
  liveModelCalls = 0;
  liveToolCalls = 0;
  /** Text of the last event that has text. */
  output = '';
  /** Reasons why some model requests were not compared; empty if all were compared. */
  readonly notCompared = new Set<string>();
  /** True if hooks were left out, see {@link leavesHooksOut}. */
  leftHooksOut = false;
  /** Tools whose live calls were replaced by stored answers, see {@link Player.#mayMake}. */
  readonly notMade = new Set<string>();
  /** Where requests of the replay do not begin with the one before, and the event of the call. */
  readonly breaks: { event: Event; stored: Step | undefined; broken: PrefixBreak }[] = [];
  readonly #ending = new AbortController();
  readonly #options: PlayerOptions;
  readonly #answers: StoredAnswers;
  readonly #script: Script;
  readonly #callCounts = new Map<string, number>();
  /** The model calls by the abort signal of their request. A hook may replace every other member of the request. */
  readonly #calls = new Map<AbortSignal, MadeCall>();
  readonly #hooks = new Map<string, ObservedAgent['hooks']>();
  readonly #isParallel: boolean;
  /** Number of compactions that the replay has made. */
  #compactions = 0;

  constructor(options: PlayerOptions) {
    const { run, firstPlace } = options;
    this.#options = options;
    this.differences = new Differences(run, firstPlace);
    this.#answers = new StoredAnswers(run);
    this.#script = new Script(run.events);
    this.#isParallel = new Set(run.events.map(({ event }) => event.branch ?? '')).size > 1;
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Returns the agent with its models and tools replaced by those of this replay. */
  wrap<Node extends AgentNode>(node: Node): Node {
    this.#hooks.set(node.name, node.hooks);
    this.leftHooksOut ||= leavesHooksOut(node, this.#options);
    const names = new Set<string>();
    const tools = node.tools.filter(({ name }) => !names.has(name) && names.add(name));
    const { compaction } = node as Pick<PreparedAgent, 'compaction'>;
    const strategies = this.#toStrategies(compaction?.strategies);
    return {
      ...node,
      ...(compaction && strategies && { compaction: { ...compaction, strategies } }),
      model: this.#toModel(node),
      fallbacks: [],
      ...(node.hooks && { hooks: toReplayHooks(node, this.differences, this.#options) }),
      tools: tools.map((tool) => this.#toTool(tool)),
      subAgents: node.subAgents.map((agent) => this.wrap(agent)),
    };
  }

  /** Compares a model request before hooks change it, because the tape was recorded before hooks too. */
  request(observed: ObservedAgent, request: ModelRequest, { signal }: ModelRequest): void {
    const { hooks: _, ...agent } = observed;
    const { name } = agent;
    const hooks = this.#hooks.get(name);
    const index = this.#callCounts.get(name) ?? 0;
    this.#callCounts.set(name, index + 1);
    const stored = this.#script.takeNext(name, 'model');
    const compared = this.#checkRequest({ ...agent, ...(hooks && { hooks }) }, index, request, stored);
    // The comparison is awaited with the model's reply, or at the end if a hook replies instead of the model.
    compared.catch(() => undefined);
    this.#calls.set(signal, { stored, compared });
  }

  take(event: Event): void {
    const stored = this.differences.take(event);
    const broken = getBreak(event);
    if (broken) this.breaks.push({ event, stored, broken });
    if (isMadeBy('summary', event)) this.#compactions += 1;
    Object.assign(this.#options.state, event.actions?.stateDelta);
    const text = getAnswerText(event.content);
    if (text !== '') this.output = text;
    // In the stored run, the maximum number of tool calls was reached before these tools ran.
    const first = getFunctionCalls(event.content)[0]?.id ?? '';
    const answer = this.#answers.find(first)?.stored.event;
    if (answer?.errorCode === 'tool_calls_limit' && this.#isStoredOnly) this.#abort(answer);
  }

  /** Records the stored events that the replay did not reach. Called when the loop has ended. */
  async end(): Promise<void> {
    for (const { compared } of this.#calls.values()) await compared;
    if (this.stopped !== undefined) return;
    this.differences.end();
    const { tape } = this.#options.run;
    for (const name of tape ? this.#hooks.keys() : []) {
      if (tape && getCalls(tape, name).length > (this.#callCounts.get(name) ?? 0))
        this.notCompared.add(`Not all model calls of \`${name}\` were made again.`);
    }
  }

  /** Ends the loop, because the tape has no stored reply for the next call. */
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
    const callModel = (request: ModelRequest) => this.#callModel(node, request);
    const stop = (reason: string) => this.stop(reason);
    const { reserve } = this.#options;
    return {
      provider: node.model.provider,
      async *generate(request): AsyncGenerator<ModelDelta, ModelAnswer, void> {
        const answer = await callModel(request);
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

  async #callModel({ name }: AgentNode, request: ModelRequest): Promise<ModelAnswer | 'live'> {
    const { model, maxLiveCalls } = this.#options;
    if (request.instruction === SUMMARY_INSTRUCTION) return this.#summarise();
    const call = this.#calls.get(request.signal);
    await call?.compared;
    if (model === 'stored') {
      if (call) return this.#answer(call.stored);
      throw this.stop(`A hook of \`${name}\` asks the model something of its own, whose answers are not kept.`);
    }
    if (this.liveModelCalls >= maxLiveCalls) {
      throw this.stop(`The live model was called ${maxLiveCalls} times, which is the maximum of this replay.`);
    }
    this.liveModelCalls += 1;
    return 'live';
  }

  /** Returns the stored summary of a compaction even if models are live, so that the history is the same. */
  #summarise(): ModelAnswer {
    const stored = this.#nextCompaction((event) => !dropsResults(event));
    const { failed } = getCompactionNotes(stored ?? {});
    if (failed !== undefined) throw new AgentError(toErrorCode(failed), 'The stored run has no summary here.');
    const text = getAnswerText(stored?.actions?.compaction?.compactedContent);
    if (text === '') throw new Error('The stored run has no summary.');
    return { content: { role: 'model', parts: [{ text: text.slice(SUMMARY_START.length) }] } };
  }

  #nextCompaction(isMeant: (event: Event) => boolean): Event | undefined {
    const all = this.#options.run.events.map(({ event }) => event).filter((event) => isMadeBy('summary', event));
    return all.slice(this.#compactions).find(isMeant);
  }

  /** In place of a function that makes the text of a compaction stands the stored text, if that function made it. */
  #toStrategies(strategies: CompactionSettings['strategies']): CompactionSettings['strategies'] {
    const stored = () => {
      const next = this.#nextCompaction(() => true);
      const isOwn = next && getCompactionNotes(next).strategy === 'function';
      return isOwn ? getAnswerText(next.actions?.compaction?.compactedContent) : undefined;
    };
    return strategies?.map((strategy) => (typeof strategy === 'function' ? stored : strategy));
  }

  async #checkRequest(
    agent: ObservedAgent,
    index: number,
    request: ModelRequest,
    stored: Step | undefined,
  ): Promise<void> {
    const { services, state, run } = this.#options;
    const { tape } = run;
    if (!tape) {
      if (stored) this.notCompared.add(NO_TAPE);
      return;
    }
    const call = getCalls(tape, agent.name)[index];
    if (call) {
      const difference = await requestDifference(tape, call, { agent, request, services, state: { ...state } });
      if (difference) this.differences.noteRequest(stored, difference);
    } else if (tape.payload.calls.length >= MAX_CALLS) {
      this.notCompared.add(`The tape has ${MAX_CALLS} model calls, and no more: later ones are not compared.`);
    } else if (stored && !this.#mayBeUnseen(stored.event)) {
      const after = { agent: agent.name, contents: request.contents.length };
      this.differences.noteRequest(stored, { path: '/request', before: null, after });
    }
  }

  /** True if the invocation ended by a limit that unstored calls count towards: a replay runs no agents-as-tools. */
  #mayBeUnseen({ errorCode }: Event): boolean {
    return errorCode === 'llm_calls_limit' || isAborted({ errorCode });
  }

  async #answer(stored: Step | undefined): Promise<ModelAnswer> {
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

  /** Returns the error that ends the loop if the runtime ended the stored run at this point; otherwise `undefined`. */
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
        if (!isLive || !this.#mayMake(tool, context.functionCallId)) return this.#answerCall(tool, args, context);
        this.liveToolCalls += 1;
        return tool.run(args, context);
      },
    };
  }

  /**
   * True if a tool may be called live. Calls that people confirmed or responded to are not repeated, because these
   * people agreed to one call only. Transactional calls are not repeated, because they commit with an event.
   */
  #mayMake(tool: Tool, id: string): boolean {
    if (runsUnattended(tool) && tool.transactional !== true && !this.#options.attendedCalls.has(id)) return true;
    this.notMade.add(tool.name);
    return false;
  }

  async #answerCall(tool: Tool, args: JsonObject, context: Parameters<Tool['run']>[1]): Promise<unknown> {
    const isSameModel = this.#options.model === 'stored';
    const call: ToolRun = { id: context.functionCallId, name: tool.name, args };
    const answer = isSameModel ? this.#answers.find(call.id) : this.#answers.findLike(call);
    if (!answer) return this.#openCall(tool, call);
    if (this.#options.run.ending.includes(answer.stored)) return this.#isOver() ?? forever();
    await this.#turnOf(answer.stored);
    this.#checkToolAgent(tool, answer.stored);
    const { event } = answer.stored;
    const { response } = answer.part.functionResponse ?? {};
    if (event.errorCode && response?.['error'] === 'interrupted' && isSameModel) {
      if (isStoppedBySibling(event)) return forever();
      // Let those tool calls of this step finish first that have stored responses.
      await nextTurn();
      this.#abort(event);
      return forever();
    }
    const { actions, attachments } = this.#answers.effectsOf(answer, call.id);
    Object.assign(context.actions, actions);
    context.attachments.push(...attachments);
    return response ?? {};
  }

  #checkToolAgent({ calls }: Tool, stored: Step): void {
    const { tape } = this.#options.run;
    if (typeof calls !== 'object') return;
    if (!tape) return void this.notCompared.add(NO_TAPE);
    const difference = toolAgentDifference(tape, calls, (reason) => this.notCompared.add(reason));
    if (difference) this.differences.noteRequest(stored, difference);
  }

  /** A call without a stored response: it stayed open in the stored run, or the stored run did not make it. */
  #openCall(tool: Tool, { id, name }: ToolRun): undefined | Promise<never> {
    const wasOpen = this.#options.run.events.some(({ event }) => event.longRunningToolIds?.includes(id));
    if (wasOpen || tool.longRunning === true) return undefined;
    const over = this.#options.model === 'stored' ? this.#isOver() : undefined;
    throw over ?? this.stop(`The tape has no answer to this call of \`${name}\`.`);
  }

  /** Waits until all events before a stored event have been replayed, because parallel agents have no fixed order. */
  async #turnOf({ place }: Step): Promise<void> {
    if (!this.#isParallel || !this.#isStoredOnly) return;
    const isEarlier = () => (this.differences.next((event) => !isStoppedBySibling(event))?.place ?? place) < place;
    for (let idle = 0; idle < IDLE_TURNS + IDLE_SLEEPS && isEarlier(); idle += 1) {
      const before = this.differences.compared;
      await (idle < IDLE_TURNS ? nextTurn() : sleep(1));
      if (this.differences.compared !== before) idle = 0;
    }
  }
}

/** Whether a replay uses stored or live replies of models, and stored or live responses of tools. */
export interface ReplayModes {
  model: 'stored' | 'live';
  tools: 'stored' | 'live';
}

const OF_TOOLS: readonly string[] = ['beforeTool', 'afterTool'];

/** True if the model or tool that a hook wraps is live. Hooks for errors wrap both and are treated separately. */
const isRun = (kind: (typeof HOOKS)[number], { model, tools }: ReplayModes): boolean =>
  kind !== 'onError' && (OF_TOOLS.includes(kind) ? tools : model) === 'live';

/** True if a replay does not run a hook of the agent, so that a change of that hook stays unnoticed. */
const leavesHooksOut = ({ hooks = [] }: AgentNode, modes: ReplayModes): boolean =>
  hooks.some((own) => HOOKS.some((kind) => own[kind] && !isRun(kind, modes)));

/** Only hooks around live models and tools run; the effects of all others are in the stored events. */
function toReplayHooks({ name, hooks = [] }: AgentNode, stored: Differences, modes: ReplayModes): Hooks[] {
  const modeOf = { input: modes.model, results: modes.tools };
  const live = hooks.map((own): Hooks => {
    const kinds = HOOKS.filter((kind) => own[kind] && isRun(kind, modes));
    const members = Object.fromEntries(kinds.map((kind) => [kind, own[kind]?.bind(own)])) as Partial<Hooks>;
    const onError = (failure: HookedFailure, context: HookContext) =>
      modes[failure.during === 'model' ? 'model' : 'tools'] === 'live' ? own.onError?.(failure, context) : undefined;
    const { timeoutMs, passesText, guard } = own;
    const at = guard?.at.filter((place) => modeOf[place] === 'live') ?? [];
    return {
      ...members,
      ...(guard && at.length > 0 && { guard: { ...guard, at } }),
      ...(own.onError && { onError }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(passesText !== undefined && { passesText }),
      name: own.name,
    };
  });
  if (modes.model === 'live') return live;
  const take = (kind: 'beforeAgent' | 'afterAgent', places: number) => (context: HookContext) => {
    const event = stored.peek(places, (one) => one.author === name && isMadeBy(kind, one));
    Object.assign(context.stateDelta, event?.actions?.stateDelta);
    return event?.content ?? undefined;
  };
  // The agent's last event is compared after this hook has run, so also search one event further.
  return [{ name: 'replay', beforeAgent: take('beforeAgent', 1), afterAgent: take('afterAgent', 2) }, ...live];
}
