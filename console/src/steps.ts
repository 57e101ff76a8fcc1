import type { Event, Schemas } from './api.ts';
import { isSteer, partsOf, resultOf } from './events.ts';

/** The events of an invocation as a tree of its steps, with what each did, for how long, and why it failed. */

export interface Step {
  key: string;
  kind: 'agent' | 'model' | 'tool' | 'wait' | 'message' | 'note';
  name: string;
  /** Unix seconds; without `end` it goes on. */
  start: number;
  end: number | undefined;
  /** Why it failed. */
  reason?: string;
  /** Sentences about it: failed tries, what hooks changed. `isBad` where they tell of a failure that was got over. */
  notes: { text: string; isBad?: boolean }[];
  /** Of a model call: where its request does not begin with the one before it, so that the provider's cache misses. */
  broken?: { part: string; text: string };
  /** Titled values to read: what it got, and what it gave. */
  input: Told[];
  output: Told[];
  /** Of a model call: the model and its tokens. */
  use?: Use;
  raw: unknown;
  children: Step[];
}

/** Text of a model is Markdown, all else JSON. */
export interface Told {
  title: string;
  value: unknown;
}

type Use = Pick<Event, 'modelVersion' | 'usageMetadata'>;

/** A span of a trace, which is stored with `DEV_UI` only. */
export interface Span {
  name: string;
  span_id: string;
  trace_id: string;
  parent_span_id: string | null;
  /** Unix time in nanoseconds. */
  start_time: number;
  end_time: number;
  attributes: Record<string, unknown>;
  links: { trace_id: string; span_id: string; attributes: Record<string, unknown> }[];
}

export interface Tree {
  question: Event[];
  /** The last event with an answer; `undefined` while there is none. */
  answer: Event | undefined;
  steps: Step[];
  start: number;
  end: number;
}

/** The call by which a person is asked to confirm another one. */
const CONFIRMATION = 'adk_request_confirmation';
const TRY_WORDS: Record<string, string> = { passed_over: 'was passed over after failures in a row' };

interface Ending {
  /** False while the invocation runs or waits. */
  isOver: boolean;
  isRunning: boolean;
  endTime: number | undefined;
  now: number;
}

export function toTree(events: Event[], spans: Span[], ending: Ending): Tree {
  const { isOver, isRunning, now } = ending;
  const first = events[0]?.timestamp ?? now;
  const top: Step = newStep('top', 'agent', '', first, {});
  const open = new Map<string, Step>();
  const calls = new Map<string, Step>();
  const models = new Map<string, Step>();
  const seen = new Map<string, number>();
  /** When the last event of each branch came. */
  const times = new Map<string, number>();
  const question: Event[] = [];
  /** The agent that worked last. */
  let worked = top;
  let answer: Event | undefined;
  for (const [index, event] of events.entries()) {
    const at = event.timestamp ?? first;
    const branch = event.branch ?? '';
    const start = Math.max(first, ...[...times].filter(([other]) => isInLine(branch, other)).map(([, time]) => time));
    const parts = partsOf(event);
    const isOfUser = event.author === 'user';
    if (isSteer(event)) {
      const result = resultOf(event);
      const title = result ? `Result of ${result.agent}` : 'Message that steers';
      const step = newStep(`u${index}`, 'message', title, at, event);
      step.end = at;
      step.output = parts.flatMap(toTold);
      // The agent that reads it next is most often the one that worked before it.
      worked.children.push(step);
    } else if (isOfUser && parts.some(({ functionResponse }) => !functionResponse)) question.push(event);
    const parent = isOfUser ? top : agentOf(top, event, start);
    if (!isOfUser) worked = parent;
    const asked = event.actions?.requestedToolConfirmations ?? {};
    for (const { functionResponse } of parts) {
      const step = functionResponse?.id && calls.get(functionResponse.id);
      // The answer that stands in for a call which a person has to confirm first.
      if (!step || Object.hasOwn(asked, functionResponse.id ?? '')) continue;
      endCall(step, functionResponse, at);
      open.delete(functionResponse.id ?? '');
    }
    const told = parts.filter((part) => !part.functionResponse && part.functionCall?.name !== CONFIRMATION);
    if (!isOfUser && (told.length > 0 || event.usageMetadata || event.errorCode)) {
      const { errorCode, content } = event;
      const isModel =
        content?.role === 'model' || event.usageMetadata != null || errorCode?.startsWith('model_') === true;
      const step = isModel
        ? newStep(`m${index}`, 'model', event.modelVersion ?? 'model call', start, event)
        : newStep(`n${index}`, 'note', 'end', at, event);
      step.end = at;
      step.output = told.flatMap(toTold);
      if (isModel) {
        if (event.usageMetadata) step.use = event;
        const broken = breakOf(event);
        if (broken) step.broken = broken;
        step.input = inputOf(events, seen.get(event.author ?? '') ?? -1, index, event);
        seen.set(event.author ?? '', index);
        if (event.id) models.set(event.id, step);
        if (event.content && !errorCode && event.content.parts?.some(({ text, thought }) => text && !thought))
          answer = event;
      }
      if (errorCode) step.reason = `${errorCode}: ${event.errorMessage ?? ''}`;
      step.notes = notesOf(event);
      if (told.length > 0 || event.usageMetadata || isModel || parts.length === 0) parent.children.push(step);
      else if (errorCode) parent.children.push(step);
    }
    if (event.actions?.compaction) {
      const step = newStep(`s${index}`, 'note', 'Summary of older events', start, event);
      step.end = at;
      step.output = partsOf({ content: event.actions.compaction.compactedContent }).flatMap(toTold);
      parent.children.push(step);
    }
    for (const { functionCall } of isOfUser ? [] : parts) {
      if (!functionCall) continue;
      const id = functionCall.id ?? `${index}`;
      const isWait = event.longRunningToolIds?.includes(id) === true;
      const step = newStep(
        `c${index} ${id}`,
        isWait ? 'wait' : 'tool',
        functionCall.name ?? 'a tool',
        at,
        functionCall,
      );
      const confirmed = confirmedBy(functionCall);
      step.input = [{ title: 'Arguments', value: functionCall.args ?? {} }];
      if (confirmed) {
        step.name = 'Confirmation';
        step.input = [{ title: 'Question', value: confirmed.hint }];
      }
      ((confirmed && calls.get(confirmed.id)) ?? parent).children.push(step);
      calls.set(id, step);
      open.set(id, step);
    }
    times.set(branch, at);
  }
  const last = events.at(-1)?.timestamp ?? first;
  if (isRunning && open.size === 0 && events.length > 0) {
    const step = newStep('now', 'model', 'goes on', last, undefined);
    step.notes = [{ text: 'What it does now is shown when it is stored.' }];
    const author = events.findLast((event) => event.author !== 'user');
    (author ? agentOf(top, author, last) : top).children.push(step);
  }
  const end = isOver ? Math.max(last, ending.endTime ?? last) : now;
  if (isOver)
    for (const step of open.values()) {
      step.end = end;
      step.notes.push({ text: 'It has no answer.', isBad: true });
    }
  refine(calls, models, spans, end);
  if (!isOver || events.at(-1)?.errorCode) answer = undefined;
  for (const step of top.children) sumUp(step);
  return { question, answer, steps: top.children, start: first, end };
}

const newStep = (key: string, kind: Step['kind'], name: string, start: number, raw: unknown): Step => ({
  key,
  kind,
  name,
  start,
  end: undefined,
  notes: [],
  input: [],
  output: [],
  raw,
  children: [],
});

/** True if events of one branch see those of the other: agents that run in parallel have branches of their own. */
const isInLine = (one: string, other: string) =>
  one === other || other === '' || one === '' || one.startsWith(`${other}.`) || other.startsWith(`${one}.`);

const branches = new WeakMap<Step, string>();

/** The agent of an event, below the agents above it; an agent that another one relieved gets a new place. */
function agentOf(top: Step, event: Event, start: number): Step {
  const path = (event.nodeInfo?.path || (event.author ?? 'agent')).split('/').map((name) => name.replace(/@\d+$/, ''));
  const branch = event.branch ?? '';
  let place = top;
  for (const name of path) {
    const { children } = place;
    const found = children.findLastIndex((each) => each.kind === 'agent' && each.name === name);
    const isRelieved = children
      .slice(found + 1)
      .some((each) => each.kind !== 'agent' || isInLine(branches.get(each) ?? '', branch));
    let next = found >= 0 && !isRelieved ? children[found] : undefined;
    if (!next) {
      next = newStep(`${place.key}/${name} ${place.children.length}`, 'agent', name, start, undefined);
      place.children.push(next);
    }
    branches.set(next, branch);
    place = next;
  }
  return place;
}

type FunctionResponse = NonNullable<ReturnType<typeof partsOf>[number]['functionResponse']>;

function endCall(step: Step, answered: NonNullable<FunctionResponse>, at: number): void {
  const response: unknown = answered.response;
  step.end = at;
  const { error } = (response ?? {}) as { error?: unknown };
  if (error !== undefined && error !== null) step.reason = toText(error);
  if (step.name === 'Confirmation' && (response as { confirmed?: boolean } | null)?.confirmed === false)
    step.notes.push({ text: 'It was refused.', isBad: true });
  const files = (answered as { parts?: ReturnType<typeof partsOf> | null }).parts ?? [];
  step.output = [{ title: 'Answer', value: loneResult(response) }, ...files.flatMap(toTold)];
}

const toText = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));

/** A result that is the only member of an answer is shown alone. */
function loneResult(response: unknown): unknown {
  const members = Object.entries(response ?? {});
  return members.length === 1 && members[0]?.[0] === 'result' ? members[0][1] : response;
}

interface Call {
  id?: string | null;
  name?: string | null;
  args?: unknown;
}

function confirmedBy({ name, args }: Call): { id: string; hint: string } | undefined {
  if (name !== CONFIRMATION) return undefined;
  const { originalFunctionCall, toolConfirmation } = (args ?? {}) as {
    originalFunctionCall?: { id?: string };
    toolConfirmation?: { hint?: string };
  };
  return { id: originalFunctionCall?.id ?? '', hint: toolConfirmation?.hint ?? '' };
}

function toTold(part: ReturnType<typeof partsOf>[number]): Told[] {
  const { text, thought, functionCall, functionResponse } = part;
  if (functionCall) return [{ title: `Calls ${functionCall.name}`, value: functionCall.args ?? {} }];
  if (functionResponse)
    return [{ title: `Answer of ${functionResponse.name}`, value: loneResult(functionResponse.response) }];
  if (text) return [{ title: thought ? 'Thought' : 'Text', value: text }];
  const { inlineData, fileData } = part;
  if (inlineData)
    return [{ title: `File (${inlineData.mimeType})`, value: inlineData.displayName ?? 'without a name' }];
  return [{ title: fileData ? 'File' : 'Part', value: fileData?.fileUri ?? part }];
}

/** At most so many messages of the input of a model call are listed. */
const MAX_INPUT = 20;

/** What a model call got that the one before it, of the same agent, had not. */
function inputOf(events: Event[], from: number, to: number, { branch }: Event): Told[] {
  const added = events
    .slice(from + 1, to)
    .filter((event) => isInLine(branch ?? '', event.branch ?? ''))
    .flatMap((event) =>
      partsOf(event)
        .flatMap(toTold)
        .map((told) => ({ ...told, title: `${event.author}: ${told.title}` })),
    );
  return added.slice(-MAX_INPUT);
}

function notesOf({ customMetadata, actions }: Event): Step['notes'] {
  const { model, hooks, blocked } = (customMetadata ?? {}) as { model?: unknown; hooks?: unknown; blocked?: unknown };
  const { failedTries, answeredBy } = (model ?? {}) as {
    failedTries?: { provider?: unknown; model?: unknown; error?: unknown }[];
    answeredBy?: { provider?: unknown; model?: unknown };
  };
  const tries = (Array.isArray(failedTries) ? failedTries : []).map(({ provider, model: name, error }) => ({
    text: `A try failed: ${String(name)} of ${String(provider)} ${TRY_WORDS[String(error)] ?? `with ${String(error)}`}.`,
    isBad: true,
  }));
  const keys = Object.keys(actions?.stateDelta ?? {});
  return [
    ...tries,
    ...(answeredBy
      ? [{ text: `Its fallback answered: ${String(answeredBy.model)} of ${String(answeredBy.provider)}.` }]
      : []),
    ...(Array.isArray(hooks) ? [{ text: `Changed by hooks: ${hooks.join(', ')}.` }] : []),
    ...(Array.isArray(blocked) && blocked.length > 0 ? [{ text: `Blocked: ${blocked.join(', ')}.`, isBad: true }] : []),
    ...(keys.length > 0 ? [{ text: `It set the state: ${keys.join(', ')}.` }] : []),
  ];
}

function breakOf({ customMetadata }: Event): Step['broken'] {
  const { break: broken } = ((customMetadata ?? {})['agent-runtime/prefix'] ?? {}) as {
    break?: { part: string; why: string; eventId?: string };
  };
  if (!broken) return undefined;
  const { part, why, eventId } = broken;
  const event = eventId === undefined ? '' : ` by event ${eventId}`;
  return {
    part,
    text: `The prompt does not begin with the one before it, so the cache misses from there: ${part}, ${why}${event}.`,
  };
}

/** Nanoseconds to seconds. */
const toSeconds = (ns: number) => ns / 1e9;

/** Where there is a trace: exact times, whole requests, and what agents did that are called as tools. */
function refine(calls: Map<string, Step>, models: Map<string, Step>, spans: Span[], end: number): void {
  const inner: Span[] = [];
  const agents = new Map(spans.map((span) => [span.span_id, span]));
  for (const span of spans) {
    const { attributes } = span;
    const call = calls.get(String(attributes['gen_ai.tool.call.id']));
    const model = models.get(String(attributes['gcp.vertex.agent.event_id']));
    const step = span.name.startsWith('execute_tool') ? call : span.name === 'call_llm' ? model : undefined;
    if (step && step.kind !== 'wait' && step.children.length === 0) {
      step.start = toSeconds(span.start_time);
      if (step.end !== undefined) step.end = toSeconds(span.end_time);
    }
    if (step === model && step) step.input = [...step.input, ...requestOf(attributes)];
    if (!step && (span.name === 'call_llm' || span.name.startsWith('execute_tool'))) inner.push(span);
  }
  const tools = [...calls.values()].filter(({ kind }) => kind === 'tool');
  for (const span of inner) {
    const [start, stop] = [toSeconds(span.start_time), toSeconds(span.end_time)];
    const around = tools
      .filter((each) => each.start <= start && (each.end ?? end) >= stop)
      .toSorted((one, other) => (one.end ?? end) - one.start - ((other.end ?? end) - other.start))[0];
    if (!around) continue;
    const name = agentNameOf(span, agents);
    let agent = around.children.find((each) => each.kind === 'agent' && each.name === name);
    if (!agent) {
      agent = newStep(`${around.key}/${name}`, 'agent', name, start, undefined);
      around.children.push(agent);
    }
    agent.children.push(toInnerStep(span, start, stop));
  }
}

function agentNameOf(span: Span, spans: Map<string, Span>): string {
  for (let each: Span | undefined = span; each; each = spans.get(each.parent_span_id ?? ''))
    if (each.attributes['gen_ai.agent.name'] !== undefined) return toText(each.attributes['gen_ai.agent.name']);
  return 'agent';
}

function toInnerStep({ name, span_id, attributes }: Span, start: number, stop: number): Step {
  const isModel = name === 'call_llm';
  const title = toText(attributes[isModel ? 'gen_ai.response.model' : 'gen_ai.tool.name'] ?? name);
  const step = newStep(span_id, isModel ? 'model' : 'tool', title, start, attributes);
  step.end = stop;
  const error = attributes['error.type'];
  if (isModel) {
    const { content, usageMetadata, errorCode, errorMessage } = (parse(attributes['gcp.vertex.agent.llm_response']) ??
      {}) as Event;
    step.use = { modelVersion: title, usageMetadata };
    step.input = requestOf(attributes);
    step.output = partsOf({ content }).flatMap(toTold);
    if (error !== undefined) step.reason = errorCode ? `${errorCode}: ${errorMessage ?? ''}` : toText(error);
    return step;
  }
  const answer = parse(attributes['gcp.vertex.agent.tool_response']);
  step.input = [{ title: 'Arguments', value: parse(attributes['gcp.vertex.agent.tool_call_args']) }];
  step.output = [{ title: 'Answer', value: loneResult(answer) }];
  if (error !== undefined) step.reason = toText((answer as { error?: unknown } | undefined)?.error ?? error);
  return step;
}

function requestOf(attributes: Span['attributes']): Told[] {
  const request = attributes['gcp.vertex.agent.llm_request'];
  return request === undefined ? [] : [{ title: 'Whole request', value: parse(request) }];
}

function parse(text: unknown): unknown {
  try {
    return JSON.parse(String(text)) as unknown;
  } catch {
    return text;
  }
}

/** Gives an agent the time of what is below it, in the order in which that began. */
function sumUp(step: Step): void {
  for (const child of step.children) sumUp(child);
  if (step.kind !== 'agent' || step.children.length === 0) return;
  step.start = Math.min(...step.children.map(({ start }) => start));
  step.end = step.children.some(({ end }) => end === undefined)
    ? undefined
    : Math.max(...step.children.map(({ end = 0 }) => end));
}

export const flatten = (steps: Step[]): Step[] => steps.flatMap((step) => [step, ...flatten(step.children)]);

/** Tokens of a step and of all below it. */
export interface Tokens {
  input: number;
  cached: number;
  output: number;
}

export function tokensOf(step: Step): Tokens {
  const { promptTokenCount, cachedContentTokenCount, candidatesTokenCount, thoughtsTokenCount } =
    step.use?.usageMetadata ?? {};
  const own = {
    input: promptTokenCount ?? 0,
    cached: cachedContentTokenCount ?? 0,
    output: (candidatesTokenCount ?? 0) + (thoughtsTokenCount ?? 0),
  };
  return step.children.map(tokensOf).reduce(
    (sum, each) => ({
      input: sum.input + each.input,
      cached: sum.cached + each.cached,
      output: sum.output + each.output,
    }),
    own,
  );
}

/** Maps times to places on the axis, 0 to 100; long waits are drawn shorter, so that the rest stays readable. */
export interface Scale {
  place: (time: number) => number;
  ticks: { place: number; seconds: number }[];
  /** Waits that are drawn shorter. */
  cuts: { from: number; to: number; seconds: number }[];
}

/** What all waits that are drawn shorter take of the axis together, and each of them at most, in percent. */
const CUTS = 30;
const CUT = 8;
const TICKS = 5;

export function toScale(steps: Step[], start: number, end: number): Scale {
  const all = flatten(steps);
  const stop = Math.max(end, start + 0.001);
  const isBusy = ({ kind, children }: Step) => kind === 'model' || (kind === 'tool' && children.length === 0);
  const busy = all.filter(isBusy).toSorted((one, other) => one.start - other.start);
  const hasWait = all.some(({ kind }) => kind === 'wait');
  const idle: [number, number][] = [];
  let until = start;
  for (const each of busy) {
    if (each.start > until) idle.push([until, each.start]);
    until = Math.max(until, each.end ?? stop);
  }
  if (stop > until) idle.push([until, stop]);
  const idleSum = idle.reduce((sum, [from, to]) => sum + to - from, 0);
  const work = Math.max(stop - start - idleSum, 0.001);
  const long = hasWait ? idle.filter(([from, to]) => to - from > work * 0.4) : [];
  const each = Math.min(CUT, CUTS / Math.max(1, long.length));
  const active = stop - start - long.reduce((sum, [from, to]) => sum + to - from, 0);
  const perSecond = (100 - each * long.length) / Math.max(active, 0.001);
  const place = (time: number) => {
    let at = 0;
    let from = start;
    for (const [cutFrom, cutTo] of long) {
      if (time <= cutFrom) break;
      at += (cutFrom - from) * perSecond + each * Math.min(1, (time - cutFrom) / (cutTo - cutFrom));
      from = Math.min(time, cutTo);
    }
    return Math.max(0, Math.min(100, at + (time - from) * perSecond));
  };
  const step = niceStep(active / TICKS);
  const ticks = Array.from({ length: Math.floor(active / step + 1e-9) + 1 }, (_, n) => n * step).map((seconds) => ({
    seconds,
    place: place(toTime(seconds, start, long)),
  }));
  return { place, ticks, cuts: long.map(([from, to]) => ({ from: place(from), to: place(to), seconds: to - from })) };
}

/** The time at which so many seconds of work are done. */
function toTime(seconds: number, start: number, cuts: [number, number][]): number {
  let time = start + seconds;
  for (const [from, to] of cuts) if (time >= from) time += to - from;
  return time;
}

function niceStep(rough: number): number {
  const size = 10 ** Math.floor(Math.log10(Math.max(rough, 0.001)));
  return ([1, 2, 5].find((each) => each * size >= rough) ?? 10) * size;
}

export type Price = Schemas['ModelPrice'];
