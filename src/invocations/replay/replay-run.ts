import { SchemaSandbox } from '../../agent/arguments/schema-sandbox.ts';
import type { AgentOverrides, PreparedAgent, ServerTools } from '../../agent/definition/agent.ts';
import { type ModelAnswer, type ModelRequest, toCallUse } from '../../agent/definition/model.ts';
import type { ToolServices } from '../../agent/definition/services.ts';
import { Inbox } from '../../agent/loop/inbox.ts';
import type { ConfirmedCalls } from '../../agent/loop/run.ts';
import { runAgent } from '../../agent/loop/run-agent.ts';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import { spend } from '../../conversation/budgets/budget-store.ts';
import { boundCall, reserveCall } from '../../conversation/budgets/reserve-call.ts';
import { budgetText } from '../../conversation/budgets/budget.ts';
import { getFunctionCalls, type JsonObject, type Part } from '../../core/content.ts';
import { toErrorCode } from '../../core/error-codes.ts';
import { AgentError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import type { InvocationContext } from '../context.ts';
import { endingEvents, toolCallsLimitError } from '../invocation.ts';
import { newToolServices } from '../tool-services.ts';
import { type LiveCall, Player, type ReplayModes } from './player.ts';
import { getResponses, type TapeRun } from './tape-run.ts';
import { isMadeBy } from '../../agent/loop/script.ts';
import { cloneJson } from '../../core/exact-json.ts';

export type ReplayContext = Pick<
  InvocationContext,
  'database' | 'contentStore' | 'log' | 'agents' | 'memory' | 'newId' | 'limits' | 'stopping'
>;

export interface ReplayOptions extends ReplayModes {
  /** Overrides of the replay, in addition to those of the invocation. */
  overrides: AgentOverrides;
  /** Tokens of live model calls: the maximum, if the replay has one, and the number used so far. */
  liveTokens: { max: number | undefined; used: number };
}

interface Replayed {
  run: TapeRun;
  key: SessionKey;
  invocationId: string;
  agent: HostedAgent;
  state: JsonObject;
  runtimeEventIds: ReadonlySet<string>;
  /** Ids of the calls that people confirmed or responded to. */
  attendedCalls: ReadonlySet<string>;
  confirmed: ConfirmedCalls[];
}

/** Number of live model calls that are allowed in addition to twice the number of stored replies. */
const FURTHER_CALLS = 5;

/** Replays one stored run and compares the events. @throws the reason of the abort signal if it is aborted */
export async function replayRun(
  context: ReplayContext,
  replayed: Replayed,
  options: ReplayOptions,
  signal: AbortSignal,
): Promise<Player> {
  const { run, key, agent, state, attendedCalls } = replayed;
  const services = replayServices(context, key, run);
  const answers = run.events.filter(({ event }) => isMadeBy('model', event)).length;
  const firstPlace = run.events[0]?.place ?? run.ending[0]?.place ?? 0;
  const maxLiveCalls = 2 * answers + FURTHER_CALLS;
  const { model, tools } = options;
  const reserve = (request: ModelRequest) => reserveLive(context.database.db, key, request, options.liveTokens);
  const player = new Player({
    run,
    firstPlace,
    state: { ...state },
    services,
    attendedCalls,
    maxLiveCalls,
    model,
    tools,
    reserve,
  });
  const replayedEvents: Event[] = [];
  const take = (event: Event) => {
    replayedEvents.push(event);
    player.take(event);
  };
  const overrides = { ...run.tape?.payload.overrides, ...options.overrides };
  const serverTools = tools === 'stored' ? storedServerTools(run) : undefined;
  try {
    const prepared = await agent.prepare(overrides, signal, key.userId, serverTools);
    try {
      await playLoop(context, replayed, { player, prepared, services, signal, take });
    } finally {
      await prepared.close();
    }
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof AgentError)) throw error;
    takeEnding(context, replayed, replayedEvents, error, take);
  }
  if (player.isAtEnding) takeEnding(context, replayed, replayedEvents, getError(run), take);
  await player.end();
  return player;
}

/**
 * Reserves a live call in the user's budgets and the replay's token limit, where it counts with its maximum until the
 * model has replied. @returns the reason as a sentence if the call may not be made
 */
async function reserveLive(
  db: Database,
  key: SessionKey,
  request: ModelRequest,
  tokens: ReplayOptions['liveTokens'],
): Promise<LiveCall | string> {
  const bound = boundCall(request);
  const most = bound.prompt + bound.output;
  if (tokens.max !== undefined && tokens.used + most > tokens.max)
    return `The next model call may use ${most} tokens, and ${tokens.max - tokens.used} of this replay are left.`;
  tokens.used += most;
  const reserved = await reserveCall(db, key, tokens.max === undefined ? request : bound.request);
  if ('what' in reserved) {
    tokens.used -= most;
    return budgetText(reserved);
  }
  const { reservation } = reserved;
  const count = (answer: ModelAnswer) => {
    const use = toCallUse(request.modelName, answer);
    tokens.used += use.promptTokens + use.outputTokens - most;
    return spend(db, key, [{ ...use, reservation }]);
  };
  return { ...reserved, count };
}

interface Playing {
  player: Player;
  prepared: PreparedAgent;
  services: ReturnType<typeof replayServices>;
  signal: AbortSignal;
  take: (event: Event) => void;
}

/** Replays the loop as an invocation does, with its limit of tool calls, but compares events, not stores them. */
async function playLoop(
  { newId, limits }: ReplayContext,
  { run, key, invocationId, state, runtimeEventIds, confirmed }: Replayed,
  { player, prepared, services, signal, take }: Playing,
): Promise<void> {
  const tooManyCalls = new AbortController();
  let toolCalls = 0;
  let replayed = 0;
  const inbox = new Inbox();
  const count = (event: Event | undefined) => {
    toolCalls += getFunctionCalls(event?.content).length;
    if (toolCalls > limits.toolCalls) tooManyCalls.abort(toolCallsLimitError(limits.toolCalls));
  };
  const steps = runAgent({
    agent: player.wrap(prepared),
    session: key,
    invocationId,
    history: run.history,
    runtimeEventIds,
    confirmed,
    state,
    inbox,
    signal: AbortSignal.any([signal, player.signal, tooManyCalls.signal]),
    streaming: false,
    eventBytes: limits.eventBytes,
    services,
    newId,
    onRequest: (...call) => player.request(...call),
    onUnstoredEvent: async (event) => count(event),
  });
  try {
    for (;;) {
      const step = await steps.next();
      signal.throwIfAborted();
      if (player.isAtEnding || player.stopped !== undefined) return;
      const event = step.done ? step.value.lastEvent : step.value;
      if (event) take(event);
      if (step.done) return;
      replayed += 1;
      inbox.add(run.messages.filter(({ after }) => after === replayed).map(({ event: message }) => message));
      count(event);
    }
  } finally {
    await steps.return(undefined as never);
  }
}

/** Returns the error that ended the stored run from outside the loop. */
function getError({ ending }: TapeRun): { code: string; message: string } {
  const { errorCode, errorMessage } = ending.at(-1)?.event ?? {};
  return { code: errorCode ?? '', message: errorMessage ?? '' };
}

/** Compares the events that the runtime adds when the loop cannot continue. */
function takeEnding(
  { newId }: ReplayContext,
  { run, invocationId, agent }: Replayed,
  replayedEvents: Event[],
  { code, message }: { code: string; message: string },
  take: (event: Event) => void,
): void {
  const before = run.history.filter((event) => event.invocationId === invocationId);
  const error = { code: toErrorCode(code), message };
  for (const event of endingEvents(invocationId, agent.name, [...before, ...replayedEvents], error, newId)) take(event);
}

/** The tape's MCP tools: no MCP server is contacted, and the replay supplies their responses. */
function storedServerTools({ tape, events, ending }: TapeRun): ServerTools {
  const schemas = new SchemaSandbox();
  return (agentName, servers) => {
    if (servers.length === 0 && tape?.payload.hasOwnServers !== true) return [];
    const declared = tape?.payload.prompts
      .filter(([agent]) => agent === agentName)
      .flatMap(([, hash]) => tape.prompts.get(hash)?.tools ?? [])
      .filter((tool) => tool.calls === 'server');
    return (declared ?? calledTools(agentName, [...events, ...ending])).map(({ name, description, parameters }) => ({
      name,
      description,
      parameters,
      needsConfirmation: false,
      calls: 'server',
      checkArguments: (args, signal) => schemas.check(parameters, args, signal),
      run: async () => undefined,
    }));
  };
}

/** For a run without a tape: returns the tools that an agent called and that responded, with unknown parameters. */
function calledTools(agentName: string, events: TapeRun['events']) {
  const responses = getResponses(events);
  const calls = events.flatMap(({ event }) => (event.author === agentName ? getFunctionCalls(event.content) : []));
  const names = new Set(calls.flatMap(({ id, name }) => (name && id && responses.has(id) ? [name] : [])));
  return [...names].map((name) => ({ name, description: '', parameters: { type: 'object' } }));
}

/** Returns the versions of an artifact that events saved, in order. */
const versionsIn = (events: Event[], name: string): number[] =>
  events.flatMap(({ actions }) => {
    const version = (actions?.artifactDelta as JsonObject | undefined)?.[name];
    return typeof version === 'number' ? [version] : [];
  });

/** Returns services that read artifacts as they were when the run began, and that save artifacts in memory only. */
function replayServices(
  context: Pick<InvocationContext, 'database' | 'contentStore' | 'log' | 'memory'>,
  key: SessionKey,
  { history, events }: TapeRun,
): ToolServices {
  // The empty lease token holds no session, so the database would refuse any write.
  const stored = newToolServices(context, { key, token: '' });
  const saved = new Map<string, Part[]>();
  const runEvents = events.map(({ event }) => event);
  const versionThen = (name: string) => versionsIn(history, name).at(-1);
  const getNumber = (name: string, count: number) =>
    versionsIn(runEvents, name)[count] ?? (versionThen(name) ?? -1) + count + 1;
  return {
    ...stored,
    async saveArtifact(name, part) {
      const parts = saved.get(name) ?? [];
      saved.set(name, [...parts, cloneJson(part)]);
      return getNumber(name, parts.length);
    },
    async loadArtifact(name, version, maxBytes) {
      const parts = saved.get(name) ?? [];
      const own = version === undefined ? parts.at(-1) : parts.find((_, count) => getNumber(name, count) === version);
      return own ?? stored.loadArtifact(name, version ?? versionThen(name), maxBytes);
    },
    listArtifacts: async () => [...new Set([...(await stored.listArtifacts()), ...saved.keys()])].toSorted(),
  };
}
