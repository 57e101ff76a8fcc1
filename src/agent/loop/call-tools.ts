import { AgentError, ChildWaitsError, toErrorText, UnknownOutcomeError } from '../../core/errors.ts';
import { runInTrace, runWith } from '../../platform/context.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { ownLines } from '../../core/own-stack.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import { type EventActions, type NewEvent, emptyActions } from '../../core/event.ts';
import { type AgentNode, getEffect, type Tool } from '../definition/tool.ts';
import { abortError, orAborted } from '../../core/abort.ts';
import type { CallRecord, Decisions, EarlierCall, LedgerAnswer, OpenCall, Transact } from './call-ledger.ts';
import { findActingTool, findTool, getWait, lookUp, toRecord, settleEarlier } from './record-calls.ts';
import { type Answer, errorText, failed, requestConfirmation, toResponse, toResponsePart } from './tool-answer.ts';
import { type Fit, fitWithin, getBound } from './kept-results.ts';
import { guardFiles, guardValue } from './guard.ts';
import { afterTool, runBeforeToolHooks, type HookMarks, newMarks, onToolError, withMarks } from './hooks.ts';
import { type AgentTurn, type InvocationState, newEvent, type Share } from './invocation-state.ts';
import { askInLoop } from './loop-stop.ts';
import type { schemaError as Check } from '../arguments/check-arguments.ts';
import { toToolLog } from '../definition/services.ts';
import { isExactIntegerError, TOO_MANY_DIGITS } from '../definition/typed-arguments.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** Default maximum of the total size of the function responses to one model answer, in characters of JSON. */
const MAX_STEP_CHARACTERS = 1_048_576;

/** What an answer passes on its way: the hooks, and the bound of what a prompt holds. */
interface Passing {
  marks: HookMarks | undefined;
  fit: Fit;
  share: Share;
}

async function runTool(
  invocation: InvocationState,
  turn: AgentTurn,
  tool: Tool,
  call: OpenCall,
  kept: JsonObject | undefined,
  { marks, fit, share }: Passing,
): Promise<Answer> {
  const { signal } = turn;
  const { session, invocationId, services, log, ledger, transact = noTransaction } = invocation.input;
  const operationId = invocation.toOperationId(call);
  const actions = emptyActions();
  const attachments: Part[] = [];
  const keep = (value: JsonObject) => keepFor(invocation, tool, call, value);
  const context = {
    session,
    invocationId,
    functionCallId: call.id,
    operationId,
    state: invocation.state,
    actions,
    confirmation: call.confirmation,
    kept,
    keep,
    attachments,
    services,
    log: toToolLog(log, { tool: call.name, callId: call.id }),
    signal,
    callAgent: (agent: AgentNode, request: string, own: AbortSignal = signal) =>
      invocation.callAgent(
        {
          agent,
          request,
          signal: own,
          operationId,
          callId: call.id,
          inBackground:
            tool.background === true || (tool.background === 'optional' && call.args['background'] === true),
          charactersAtMost: tool.limits?.maxResultCharacters ?? getBound(turn),
        },
        { kept: { ...kept }, keep },
        agent === tool.calls ? share : undefined,
      ),
  };
  const run = async (sql: ToolSql): Promise<LedgerAnswer> => {
    const value = await runWith({ tool: tool.name }, async () => tool.run(call.args, { ...context, sql }));
    const raw = tool.longRunning === true && value === undefined ? undefined : toResponse(value);
    const checked = raw && marks ? toResponse(await afterTool(invocation, turn, call, raw, marks)) : raw;
    const files =
      marks && attachments.length > 0 ? await guardFiles(invocation, turn, attachments, marks) : attachments;
    const isBlocked = typeof files === 'string';
    const response = isBlocked ? { error: files } : checked;
    // Media are copied, because a tool that still runs after its abort must not change a stored event.
    const media = isBlocked ? [] : cloneJson(files);
    const made = { response, attachments: media, actions: cloneJson(actions) };
    // The answer of a transactional tool is stored in its transaction, so it must fit before.
    const answer = transactional ? await fit(call, made) : made;
    return Object.hasOwn(actions.requestedToolConfirmations ?? {}, call.id) ? pausedForPerson(answer) : answer;
  };
  const { transactional = false } = tool;
  try {
    // A child ends by itself after an abort, and its end is stored before that of its parent.
    if (!transactional) return await (isChild(invocation, tool) ? run(noSql) : orAborted(run(noSql), signal));
    const record = ledger && toRecord(invocation, tool, call, { state: 'done' });
    const { result: _stored, ...answer } = await transact(run, signal, record);
    return answer;
  } catch (error) {
    if (ledger?.isFailure(error)) throw error;
    if (error instanceof ChildWaitsError && !signal.aborted)
      return { response: undefined, actions: emptyActions(), attachments: [], waitsForChild: true };
    if (signal.aborted) return { ...failed('interrupted'), state: transactional ? 'done' : 'unknown' };
    if (error instanceof UnknownOutcomeError && getEffect(tool) === 'once' && !isChild(invocation, tool)) {
      const earlier: EarlierCall = { state: 'started', attempt: 1, response: null };
      const settled = await settleEarlier(invocation, turn, tool, call, earlier, undefined, error.message);
      const answer = settled ?? failed(error.message);
      return marks ? guardAnswer(invocation, turn, ['results'], answer, marks) : answer;
    }
    const replacement = marks && (await onToolError(invocation, turn, call, error, marks));
    if (replacement) return replacement;
    if (isExactIntegerError(error, call.args)) return failed(TOO_MANY_DIGITS);
    const answer = marks ? await guardError(invocation, turn, error, marks) : failed(errorText(error));
    const lines = ownLines(error);
    if (lines.length === 0) return answer;
    const stack = [errorText(error), ...lines].join('\n');
    log?.warn({ tool: call.name, callId: call.id, stack }, 'a tool failed');
    return { ...answer, stack };
  }
}

/** Guardrails check a tool's error too, because a server may put any text into it. */
async function guardError(
  invocation: InvocationState,
  turn: AgentTurn,
  error: unknown,
  marks: HookMarks,
): Promise<Answer> {
  const answer = failed(errorText(error));
  if (!answer.response || (error instanceof AgentError && error.code === 'hook_failed')) return answer;
  return guardAnswer(invocation, turn, ['results'], answer, marks);
}

/** Lets guardrails check a function response that has not passed the hooks. */
async function guardAnswer(
  invocation: InvocationState,
  turn: AgentTurn,
  places: ('input' | 'results')[],
  answer: Answer,
  marks: HookMarks,
): Promise<Answer> {
  let { response } = answer;
  try {
    for (const at of response ? places : []) {
      const { value, blocked } = await guardValue(invocation, turn, at, response ?? {}, marks);
      if (blocked !== undefined) return { ...answer, response: { error: blocked }, attachments: [] };
      response = value;
    }
    return { ...answer, response };
  } catch (cause) {
    return failed(turn.signal.aborted ? 'interrupted' : errorText(cause));
  }
}

async function keepFor(invocation: InvocationState, tool: Tool, call: OpenCall, kept: JsonObject): Promise<void> {
  if (getEffect(tool) === 'none') return;
  await invocation.input.ledger?.write([toRecord(invocation, tool, call, { state: 'started', response: { kept } })]);
}

/** The tool requested a confirmation: its actions are stored, and it runs again after the person's reply. */
const pausedForPerson = (answer: LedgerAnswer): Answer => ({
  ...answer,
  actions: { ...answer.actions, skipSummarization: true },
  state: 'settled',
});

const noSql: ToolSql = async () => {
  throw new Error('Only a tool with `transactional: true` has `context.sql`.');
};
const noTransaction: Transact = async () => {
  throw new Error('There is no database for transactional tools here.');
};

async function answerCall(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  decision: boolean | undefined,
  earlier: EarlierCall | undefined,
  passing: Passing,
  question: string | undefined,
): Promise<Answer> {
  const { marks } = passing;
  const tool = findTool(turn, call);
  if (!tool) {
    const names = turn.agent.tools.map((candidate) => candidate.name).join(', ') || 'none';
    return failed(`Tool \`${toErrorText(call.name)}\` does not exist. Available: ${names}`);
  }
  if (call.invalidArguments !== undefined) {
    return failed('The arguments were not a JSON object. Call the tool again with valid JSON.');
  }
  const problem = tool.checkArguments
    ? await tool.checkArguments(call.args, turn.signal)
    : await checkArguments(tool, call);
  if (problem !== undefined) return failed(problem);
  if (turn.signal.aborted) return failed('interrupted');
  const isRejected = decision === false && !call.confirmation;
  const reject = async () => {
    const answer = failed(call.reason ? `This tool call is rejected: ${call.reason}` : 'This tool call is rejected.');
    // Guardrails have not seen the reason, which a person wrote.
    return marks && call.reason ? guardAnswer(invocation, turn, ['input'], answer, marks) : answer;
  };
  // The tool never started, because a hook had requested the confirmation that was refused.
  if (earlier?.state === 'settled' && !earlier.response && isRejected) return reject();
  if (earlier) {
    const settled = await settleEarlier(invocation, turn, tool, call, earlier, decision);
    // Guardrails have not seen a response from a person or from the tool's `check`. The tool's own response has passed
    // the hooks before it was recorded.
    const isUnchecked = settled && (earlier.state === 'settled' || !earlier.response?.response);
    if (settled)
      return isUnchecked && marks ? guardAnswer(invocation, turn, ['input', 'results'], settled, marks) : settled;
    const { kept } = earlier.response ?? {};
    const more = { state: 'started' as const, attempt: earlier.attempt + 1, ...(kept && { response: { kept } }) };
    const retry = toRecord(invocation, tool, call, more);
    await invocation.input.ledger?.write([retry]);
  } else if (isRejected) return reject();
  const hooked = marks && decision !== true && (await runBeforeToolHooks(invocation, turn, call, marks));
  if (hooked) return hooked;
  if (!earlier && tool.needsConfirmation && decision === undefined)
    return requestConfirmation(call, question ?? getWait(tool, call.args).hint);
  if (question !== undefined && decision === undefined && !earlier)
    return { ...requestConfirmation(call, question), state: 'settled' };
  if (marks && call.confirmation?.payload) {
    const { payload } = call.confirmation;
    const guarded = await guardAnswer(invocation, turn, ['input'], { ...failed(''), response: { payload } }, marks);
    const checked = guarded.response?.['payload'];
    if (typeof checked !== 'object') return guarded;
    call.confirmation = { ...call.confirmation, payload: checked as JsonObject };
  }
  return runTool(invocation, turn, tool, call, earlier?.response?.kept, passing);
}

let loading: Promise<{ schemaError: typeof Check }> | undefined;

/** The JSON Schema validator is loaded with the first check. */
async function checkArguments({ parameters }: Tool, { args }: OpenCall): Promise<string | undefined> {
  const { schemaError } = await (loading ??= import('../arguments/check-arguments.ts'));
  return schemaError(parameters, args, 'arguments');
}

async function answerTraced(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  decision: boolean | undefined,
  earlier: EarlierCall | undefined,
  { fit, share }: Pick<Passing, 'fit' | 'share'>,
  question: string | undefined,
): Promise<Answer> {
  const step = invocation.input.observer?.toolCall?.(turn.agent.name, call);
  const marks = turn.agent.hooks && newMarks();
  const passing = { marks, fit, share };
  const run = async () => fit(call, await answerCall(invocation, turn, call, decision, earlier, passing, question));
  const answer = await runInTrace(step?.traceparent, run);
  step?.end(answer.response, answer.stack);
  if (!marks) return answer;
  // State changes that hooks made are stored with the function response. If the call waits for a person, the arguments
  // that hooks changed are stored too.
  return { ...answer, actions: mergeActions([answer.actions, { stateDelta: marks.stateDelta }]), hooks: marks.changed };
}

/**
 * Merges the actions of several function responses: the later value wins, and maps are merged key by key. The maps have
 * no prototype, so that a key `__proto__` is ordinary data.
 */
export function mergeActions(all: EventActions[]): EventActions {
  const merged: Record<string, unknown> = emptyActions();
  for (const actions of all) {
    for (const [name, value] of Object.entries(actions)) {
      const isMap = name === 'stateDelta' || name === 'artifactDelta' || name.startsWith('requested');
      merged[name] = isMap ? mergeMaps(merged[name], value) : value;
    }
  }
  return merged;
}

function mergeMaps(first: unknown, second: unknown): JsonObject {
  const merged = Object.create(null) as JsonObject;
  for (const map of [first, second]) for (const [key, value] of Object.entries(map ?? {})) merged[key] = value;
  return merged;
}

/**
 * Runs the tool calls of one model answer in parallel and returns all function responses as ONE event, in the order of
 * the calls; `undefined` if no call has a response yet. After an abort, calls that still run get the response
 * `interrupted`, and the event gets the abort's error. Never throws. `waitsForChild`: nothing of the step is to be stored,
 * because the step is made again when the agents of its calls have ended; the ledger keeps the other responses.
 * @param isLive - true in a live session, whose model cannot read kept results. Default: false
 */
export async function callTools(
  invocation: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  decisions: Decisions = new Map(),
  isLive = false,
): Promise<{ event: NewEvent | undefined; stillOpen: boolean; waitsForChild?: boolean }> {
  const stored = invocation.input.script?.take(turn, 'tools');
  if (stored) return { event: stored, stillOpen: getFunctionResponses(stored.content).length < calls.length };
  const fit = fitWithin(invocation, turn, invocation.input.eventBytes ?? MAX_STEP_CHARACTERS, isLive);
  const { ledger } = invocation.input;
  const { signal } = turn;
  const earlier = await lookUp(invocation, turn, calls, decisions);
  const question = decisions.size === 0 ? askInLoop(invocation, turn, calls) : undefined;
  const children = calls.filter((call) => isChild(invocation, findTool(turn, call))).length;
  const share = { agents: (turn.width ?? 1) * children, hasOthers: children < calls.length };
  let running = calls.length;
  let waitsForChild = false;
  const answers = await Promise.all(
    calls.map(async (call) => {
      const [decision, entry] = [decisions.get(call.id), earlier.get(call.id)];
      const { result, ...answer } = await answerTraced(
        invocation,
        turn,
        call,
        decision,
        entry,
        { fit, share },
        question,
      );
      running -= 1;
      waitsForChild ||= answer.waitsForChild === true;
      const record = toEntry(invocation, turn, call, answer, entry !== undefined || decision === true);
      const kept = result && { result };
      // The response of the last call to finish is not written to the ledger of tool calls, because the next event
      // stores it. A failed write is ignored here, because the write of that event will fail too and report the error.
      if ((running > 0 || waitsForChild) && answer.response && record && !signal.aborted) {
        const { response, actions, attachments } = answer;
        await ledger
          ?.write([{ ...record, ...kept, response: { response, actions, attachments } }])
          .catch(() => undefined);
        return { call, answer, record };
      }
      const tool = kept && findTool(turn, call);
      // A result of a call that the ledger does not record is stored with the event alone.
      const last = record ?? (tool && toRecord(invocation, tool, call, {}));
      return { call, answer, record: last && { ...last, ...kept } };
    }),
  );
  if (waitsForChild && !signal.aborted) {
    const open = answers.filter(({ answer, record }) => !answer.response && !answer.waitsForChild && record);
    const records = open.map(({ answer, record }) => toOpenRecord(record as CallRecord, answer));
    if (records.length > 0) await ledger?.write(records);
    for (const { call, answer } of answers) {
      if (!answer.waitsForChild) continue;
      const { id, name, args } = call;
      const hint = `The agent \`${name}\` waits; its own tasks are to be answered.`;
      ledger?.waitFor({ callId: id, callName: name, about: id, tool: name, args, wait: { kind: 'child', hint } });
    }
    return { event: undefined, stillOpen: true, waitsForChild };
  }
  const parts: Part[] = [];
  const records: CallRecord[] = [];
  const changed: string[] = [];
  for (const { call, answer, record } of answers) {
    parts.push(...toResponsePart(call, signal.aborted && !answer.response ? failed('interrupted') : answer));
    if (record) records.push(record);
    changed.push(...(answer.hooks ?? []));
  }
  const stillOpen = parts.length < calls.length;
  if (parts.length === 0 && !signal.aborted) {
    ledger?.writeWith(undefined, records);
    return { event: undefined, stillOpen };
  }
  const made = newEvent(invocation, turn, {
    ...(parts.length > 0 ? { content: { role: 'user', parts } } : {}),
    actions: mergeActions(answers.map(({ answer }) => answer.actions)),
  });
  const event = changed.length > 0 ? withMarks(made, { changed, stateDelta: {}, blocked: [] }) : made;
  ledger?.writeWith(event.id, records);
  return { event: signal.aborted ? withError(event, abortError(signal)) : event, stillOpen };
}

/** The record of a call that has run and waits, for an attempt of its step that must not run it again. */
const toOpenRecord = (record: CallRecord, { actions, attachments }: Answer): CallRecord => ({
  ...record,
  response: { response: undefined, actions, attachments, isOpen: true },
});

/** True for a tool that is an agent and runs in a session of its own. */
const isChild = ({ input }: InvocationState, tool: Tool | undefined): boolean =>
  typeof tool?.calls === 'object' && input.children?.has(tool.calls) === true;

/** Returns the record of a tool call's end for the ledger, if its start was recorded there. */
function toEntry(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  { state = 'done' }: Answer,
  hasEntry: boolean,
): CallRecord | undefined {
  const tool = findActingTool(turn, call);
  return tool && (hasEntry || !tool.needsConfirmation) ? toRecord(invocation, tool, call, { state }) : undefined;
}

export function withError(event: NewEvent, error: { code: string; message: string }): NewEvent {
  return { ...event, errorCode: error.code, errorMessage: error.message };
}
