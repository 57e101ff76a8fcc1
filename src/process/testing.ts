import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AgentSource } from '../agent/definition/agent.ts';
import type { Model } from '../agent/definition/model.ts';
import { getConfirmedId } from '../agent/loop/script.ts';
import { readConfig } from './config.ts';
import { getAnswerText, getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../core/content.ts';
import type { Event } from '../core/event.ts';
import { CONFIRMATION_CALL, HARNESS_APP, isRuntimeCall } from '../core/names.ts';
import type { Task } from '../invocations/waits/task.ts';
import { createLog } from '../platform/log.ts';
import { startRuntime } from './runtime.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** Exports of `agent-runtime/testing`: functions to run an agent in a test with a scripted or a recorded model. */

export type { ModelRequest } from '../agent/definition/model.ts';
export { callPart, recordedModel, scriptedModel, type ScriptedAnswer } from './scripted-model.ts';

/** What `ask` returns. */
export interface TestAnswer {
  /** How the invocation ended; `paused` if it waits for what is in `tasks`. */
  status: 'paused' | 'succeeded' | 'failed' | 'interrupted' | 'cancelled';
  /** The events of the invocation, as `/run` answers them. */
  events: Event[];
  /** The text of the last event that has a text. */
  output: string;
  /** The parsed value of an answer of an agent with an output schema. */
  value: unknown;
  /** Why the invocation failed, with a code of docs/errors.md; undefined if it did not. */
  error: { code: string; message: string } | undefined;
  /** What it waits for: confirmations, questions, signals and more, each for `answer`. */
  tasks: TestTask[];
  /** The tool calls in order, each with its response; `undefined` if the call has no response yet. */
  calls: { name: string; args: JsonObject; response: JsonObject | undefined }[];
  /** The changes of the state that the events made. */
  state: JsonObject;
  /** The versions of artifacts that the agent saved, by the artifact's name. */
  artifacts: Record<string, unknown>;
}

/** Something that an invocation waits for, as `GET /tasks` has it. */
export interface TestTask {
  /** Names the task. */
  id: string;
  /** `confirmation` of a call, `effect` of one that may have acted, `question`, `call`, `sleep`, `signal`, `budget` or `child`. */
  kind: 'confirmation' | 'effect' | 'question' | 'call' | 'sleep' | 'signal' | 'budget' | 'child';
  /** The application. */
  appName: string;
  /** The user whose invocation waits. */
  requestedBy: string;
  /** What is asked: the tool and its arguments, a sentence for people, and the JSON Schema of the answer. */
  form: {
    tool: string;
    args?: JsonObject | undefined;
    hint?: string | undefined;
    schema?: JsonObject | undefined;
  };
}

/** An evaluation set in ADK's format, or the path of a file with one. */
export type EvalSetSource = string | { eval_set_id: string; eval_cases: object[] };

/** The result of one case of an evaluation set. */
export interface TestCase {
  /** Id of the case in the set. */
  evalId: string;
  /** True if every metric reached its threshold. */
  passed: boolean;
  /** The score of each metric by its name; `null` if the metric could not be scored. */
  scores: Record<string, number | null>;
}

/** What `startTestRuntime` takes. */
export interface TestRuntimeOptions {
  /** Your agents by the name of their application. */
  agents?: Record<string, AgentSource>;
  /** The model. Default: the offline model. */
  model?: Model;
  /** Further settings by their names in docs/configuration.md. The environment is not read. */
  settings?: Record<string, string>;
}

/** The service of a test. */
export interface TestRuntime {
  /** Address of the service, for requests of your own. */
  url: string;
  /** Sends and returns JSON. @throws {Error} with status and text of a response that is not a success */
  send<Body>(method: string, path: string, body?: unknown): Promise<Body>;
  /** Sends a message to an agent. Creates the session if it does not exist. */
  ask(message: string | Part[], where?: { app?: string; user?: string; session?: string }): Promise<TestAnswer>;
  /**
   * Answers what an invocation waits for, and waits until it has ended or waits for something else. `false` rejects it,
   * `true` confirms it, an object is the answer. `by` is the person who answers, where it is not the user.
   * @returns the whole invocation, from its beginning on
   */
  answer(task: TestTask, answer: boolean | JsonObject, by?: string): Promise<TestAnswer>;
  /** Runs an evaluation set in ADK's format. */
  evaluate(set: EvalSetSource, criteria: Record<string, number>, app?: string): Promise<TestCase[]>;
  /** Stops the service and removes its temporary database. */
  close(): Promise<void>;
}

/**
 * Starts the service on a free port, with a PostgreSQL in a temporary directory or that of `settings.DATABASE_URL`.
 * @throws {Error} with a remedy, e.g. if the optional package of the embedded PostgreSQL is missing
 */
export async function startTestRuntime(options: TestRuntimeOptions = {}): Promise<TestRuntime> {
  const { settings = {}, ...sources } = options;
  const directory = await mkdtemp(join(tmpdir(), 'agent-runtime-test-'));
  const remove = () => rm(directory, { recursive: true, force: true });
  const own = { PORT: '0', DATA_DIR: join(directory, 'data'), DRAIN_DELAY_MS: '0', LOG_LEVEL: 'silent', EVALS: 'true' };
  try {
    const config = readConfig({ ...own, AGENTS_DIR: join(directory, 'agents'), ...settings });
    const runtime = await startRuntime({ config, log: createLog(config.LOG_LEVEL), ...sources });
    const close = async () => {
      await runtime.close();
      await remove();
    };
    const send = sender(runtime.url);
    const kit = { ask: createAsk(send), answer: createAnswer(send), evaluate: evaluator(send) };
    return { url: runtime.url, send, ...kit, close };
  } catch (error) {
    await remove();
    throw error;
  }
}

const sender = (url: string): TestRuntime['send'] =>
  async function send<Body>(method: string, path: string, body?: unknown): Promise<Body> {
    const json = body === undefined ? {} : { body: JSON.stringify(body) };
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(url + path, { method, headers, ...json });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === '' ? undefined : parseExactJson(text)) as Body;
  };

type Place = Pick<Task, 'appName' | 'requestedBy'> & { sessionId: string };

const toPath = ({ appName, requestedBy, sessionId }: Place) =>
  `/apps/${appName}/users/${encodeURIComponent(requestedBy)}/sessions/${encodeURIComponent(sessionId)}`;

const createAsk = (send: TestRuntime['send']): TestRuntime['ask'] =>
  async function ask(message, { app = HARNESS_APP, user = 'user', session = 'test' } = {}) {
    const parts = typeof message === 'string' ? [{ text: message }] : message;
    const sessions = `/apps/${app}/users/${encodeURIComponent(user)}/sessions`;
    await send('POST', sessions, { sessionId: session }).catch((error: unknown) => {
      // The session exists already.
      if (!(error instanceof Error && error.message.includes(': 409 '))) throw error;
    });
    const at = { appName: app, userId: user, sessionId: session };
    const events = await send<Event[]>('POST', '/run', { ...at, newMessage: { role: 'user', parts } });
    return toAnswer(send, { appName: app, requestedBy: user, sessionId: session }, events);
  };

/** Interval between two looks at an invocation that runs in the background, in milliseconds. */
const POLL_MS = 20;
const isUnderWay = (status: string) => status === 'queued' || status === 'running';

const createAnswer = (send: TestRuntime['send']): TestRuntime['answer'] =>
  async function answer({ id }, given, by) {
    const change =
      given === false ? { action: 'reject' } : { action: 'answer', ...(given !== true && { answer: given }) };
    const task = await send<Task>('PATCH', `/tasks/${id}`, { ...change, ...(by === undefined ? {} : { by }) });
    const { appName, requestedBy, sessionId = '', rootSessionId, invocationId: askingId = '' } = task;
    const { place, invocationId } = await findRoot(send, { appName, requestedBy, sessionId }, askingId);
    // Until it has the answer; one that waits for other answers too stays as it is.
    for (;;) {
      const { state } = await send<Task>('GET', `/tasks/${id}`);
      const status = await findStatus(send, place, invocationId);
      const isOpen = (await listOpen(send, place, invocationId)).length > 0;
      // A parent is still paused for a moment after the agent that it called has ended.
      const waitsOn = isOpen || (state !== 'answered' && (rootSessionId === undefined || status !== 'paused'));
      if (!isUnderWay(status) && waitsOn) break;
      await sleep(POLL_MS);
    }
    const { events } = await send<{ events: Event[] }>('GET', toPath(place));
    return toAnswer(
      send,
      place,
      events.filter((event) => event.invocationId === invocationId),
    );
  };

/** The invocation that a client started, of one of an agent that is used as a tool. */
async function findRoot(send: TestRuntime['send'], place: Place, invocationId: string) {
  type Details = { parent?: { sessionId: string; invocationId: string } };
  const { parent } = await send<Details>('GET', `${toPath(place)}?withDetails=true&numRecentEvents=0`);
  if (!parent) return { place, invocationId };
  return findRoot(send, { ...place, sessionId: parent.sessionId }, parent.invocationId);
}

const findStatus = async (send: TestRuntime['send'], place: Place, invocationId: string): Promise<string> =>
  (await send<{ status: string }>('GET', `${toPath(place)}/invocations/${invocationId}`)).status;

async function listOpen(send: TestRuntime['send'], place: Place, invocationId: string): Promise<Task[]> {
  const { appName, requestedBy: ownerId, sessionId } = place;
  const query = new URLSearchParams({ appName, ownerId, sessionId }).toString();
  const { items } = await send<{ items: Task[] }>('GET', `/tasks?${query}`);
  return items.filter((task) => task.invocationId === invocationId || task.rootSessionId === sessionId);
}

/** @param all the events of an invocation, also those of the user */
async function toAnswer(send: TestRuntime['send'], place: Place, all: Event[]): Promise<TestAnswer> {
  const invocationId = all.at(-1)?.invocationId ?? '';
  const events = all.filter(({ author }) => author !== 'user');
  const responses = new Map(all.flatMap(({ content }) => getFunctionResponses(content).map((each) => [each.id, each])));
  const calls = events.flatMap(({ content }) => getFunctionCalls(content));
  // A call that waits for a confirmation has a response which says that.
  for (const call of calls)
    if (call.name === CONFIRMATION_CALL && !responses.has(call.id)) responses.delete(getConfirmedId(call));
  const texts = events.map(({ content }) => getAnswerText(content)).filter((text) => text !== '');
  const failed = events.find(({ errorCode }) => errorCode);
  return {
    status: (await findStatus(send, place, invocationId)) as TestAnswer['status'],
    events,
    output: texts.at(-1) ?? '',
    value: events.findLast(({ output }) => output !== undefined)?.output,
    error: failed && { code: failed.errorCode ?? '', message: failed.errorMessage ?? '' },
    tasks: await listOpen(send, place, invocationId),
    // The request for a confirmation is a function call on ADK's wire; here it is a task.
    calls: calls
      .filter(({ name }) => !isRuntimeCall(name))
      .map(({ id, name = '', args }) => ({
        name: name ?? '',
        args: args ?? {},
        response: responses.get(id)?.response ?? undefined,
      })),
    state: Object.assign({}, ...events.map(({ actions }) => actions?.stateDelta)) as JsonObject,
    artifacts: Object.assign({}, ...events.map(({ actions }) => actions?.artifactDelta)) as Record<string, unknown>,
  };
}

interface EvalResults {
  runEvalResults: {
    evalId: string;
    finalEvalStatus: number;
    overallEvalMetricResults: { metricName: string; score?: number | null }[];
  }[];
}

/** ADK's number for the status of a case that passed. */
const PASSED = 1;

const evaluator = (send: TestRuntime['send']): TestRuntime['evaluate'] =>
  async function evaluate(source, criteria, app = HARNESS_APP) {
    const set = typeof source === 'string' ? (JSON.parse(readFileSync(source, 'utf8')) as JsonObject) : { ...source };
    const id = String(set['eval_set_id'] ?? set['evalSetId']);
    await send('POST', `/apps/${app}/eval-sets`, { evalSet: set });
    const evalMetrics = Object.entries(criteria).map(([metricName, threshold]) => ({ metricName, threshold }));
    const path = `/apps/${app}/eval-sets/${encodeURIComponent(id)}/run`;
    const { runEvalResults } = await send<EvalResults>('POST', path, { evalMetrics });
    return runEvalResults.map(({ evalId, finalEvalStatus, overallEvalMetricResults }) => ({
      evalId,
      passed: finalEvalStatus === PASSED,
      scores: Object.fromEntries(overallEvalMetricResults.map(({ metricName, score }) => [metricName, score ?? null])),
    }));
  };
