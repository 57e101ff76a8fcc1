import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AgentSource } from '../agent/definition/agent.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../agent/definition/model.ts';
import { readConfig } from '../config/config.ts';
import type { Part } from '../core/content.ts';
import { createLog } from '../platform/log.ts';
import { startRuntime } from './runtime.ts';

/** Exports of `agent-runtime/testing`: run an agent in a test with a scripted model. */

export type { ModelRequest } from '../agent/definition/model.ts';

/** One answer of a script: its parts, or a function of the request, or an error to throw. */
export type ScriptedAnswer = Part[] | Error | ((request: ModelRequest) => Part[] | Promise<Part[]>);

/** A model that gives the scripted answers in order and keeps every request it got; the last answer is repeated. */
export function scriptedModel(script: ScriptedAnswer[]): Model & { requests: ModelRequest[] } {
  const requests: ModelRequest[] = [];
  async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    requests.push(request);
    const scripted = script[Math.min(requests.length, script.length) - 1] ?? [];
    if (scripted instanceof Error) throw scripted;
    const parts = typeof scripted === 'function' ? await scripted(request) : scripted;
    for (const part of parts) {
      if (part.text) yield { content: { role: 'model', parts: [part] }, modelVersion: 'scripted-1' };
    }
    return {
      content: { role: 'model', parts },
      modelVersion: 'scripted-1',
      finishReason: 'STOP',
      usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, thoughtsTokenCount: 2, totalTokenCount: 17 },
    };
  }
  return { provider: 'scripted', generate, requests };
}

/** A part with a function call. */
export const callPart = (name: string, args: Record<string, unknown> = {}, id?: string): Part => ({
  functionCall: { ...(id === undefined ? {} : { id }), name, args },
});

/** How a runtime for a test is made. */
export interface TestRuntimeOptions {
  /** Your agents by the name of their application. */
  agents?: Record<string, AgentSource>;
  /** [the offline model] */
  model?: Model;
  /** Further settings by the names of docs/configuration.md; the environment is not read. */
  settings?: Record<string, string>;
}

/** A runtime for a test. */
export interface TestRuntime {
  /** Where it listens. */
  url: string;
  /** Sends JSON and gives the answer's JSON. @throws {Error} with status and text of an answer that is no success. */
  send<Body>(method: string, path: string, body?: unknown): Promise<Body>;
  /** Ends it and removes its database. */
  close(): Promise<void>;
}

/**
 * Starts the whole service on a free port, with a PostgreSQL of its own in a temporary directory, or a database of
 * yours where `settings.DATABASE_URL` names one.
 * @throws {Error} with a sentence, where the optional package of the embedded PostgreSQL is missing for instance.
 */
export async function startTestRuntime(options: TestRuntimeOptions = {}): Promise<TestRuntime> {
  const { settings = {}, ...sources } = options;
  const directory = await mkdtemp(join(tmpdir(), 'agent-runtime-test-'));
  const remove = () => rm(directory, { recursive: true, force: true });
  const own = { PORT: '0', DATA_DIR: join(directory, 'data'), DRAIN_DELAY_MS: '0', LOG_LEVEL: 'silent' };
  try {
    const config = readConfig({ ...own, AGENTS_DIR: join(directory, 'agents'), ...settings });
    const runtime = await startRuntime({ config, log: createLog(config.LOG_LEVEL), ...sources });
    const close = async () => {
      await runtime.close();
      await remove();
    };
    return { url: runtime.url, send: sender(runtime.url), close };
  } catch (error) {
    await remove();
    throw error;
  }
}

const sender = (url: string): TestRuntime['send'] =>
  async function send<Body>(method: string, path: string, body?: unknown): Promise<Body> {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(url + path, { method, headers, ...sent });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as Body;
  };
