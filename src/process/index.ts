import type { RequestListener, Server } from 'node:http';
import type { output } from 'zod';
import type { AgentSource } from '../agent/definition/agent.ts';
import type { Model } from '../agent/definition/model.ts';
import { readConfig } from './config.ts';
import { processEnvironment } from '../config/environment.ts';
import { createLog } from '../platform/log.ts';
import type { sessionSchema } from '../core/session.ts';
import { openRuntime } from './runtime.ts';

/**
 * Exports of the package `agent-runtime`: functions that define agents and tools in code, and the service as part of a
 * process.
 */

export { defineAgent, defineTool } from '../agent/definition/agent-module.ts';
export { guardrail } from '../agent/definition/guardrail.ts';
export { defineMask, defineMetric } from '../agent/definition/agent-module.ts';
export { z } from 'zod';
export type { PlainTool, TypedTool } from '../agent/definition/agent-module.ts';
export type {
  AgentModel,
  AgentSource,
  CompactionSettings,
  LoopStop,
  McpServer,
  MemorySettings,
  ModelTarget,
  OpenApiSource,
  RemoteAgent,
} from '../agent/definition/agent.ts';
export type { AgentKind, AgentNode, NamedModel } from '../agent/definition/tool.ts';
export type { Mask, MetricTurn, OwnMetric } from '../agent/definition/agent-module.ts';
export type {
  Model,
  ModelAnswer,
  ModelDelta,
  CallingInvocation,
  ModelRequest,
  Sampling,
  ToolChoice,
  ToolDeclaration,
  FailedTry,
} from '../agent/definition/model.ts';
export type {
  Confirmation,
  AgentReply,
  OperationOutcome,
  Tool,
  ToolContext,
  ToolLimits,
  Wait,
} from '../agent/definition/tool.ts';
export type { ToolLog, ToolServices } from '../agent/definition/services.ts';
export type { GuardedPlace, GuardrailCheck, GuardrailOptions } from '../agent/definition/guardrail.ts';
export type { CircuitBreaker } from '../agent/definition/circuit-breaker.ts';
export type { OutputSchema, WrittenSchema } from '../agent/definition/output-schema.ts';
export type {
  CallContext,
  CompactEvents,
  Guard,
  HookContext,
  HookedCall,
  HookedFailure,
  HookResult,
  Hooks,
  PinEvent,
} from '../agent/definition/hooks.ts';
export type { Content, JsonObject, Part } from '../core/content.ts';
export type { Event, EventActions } from '../core/event.ts';
export type { SessionKey } from '../core/session.ts';
export type { AgentError } from '../core/errors.ts';
export type { ToolSql } from '../core/tool-sql.ts';

/** A session as the API answers it. */
export type Session = output<typeof sessionSchema>;

/** What `createRuntime` takes. */
export interface CreateRuntimeOptions {
  /** The settings by their names in docs/configuration.md. Default: the environment and the file `.env`. */
  settings?: Record<string, string | undefined>;
  /** Your agents by the name of their application, in addition to those in `AGENTS_DIR`. */
  agents?: Record<string, AgentSource>;
  /** The model, instead of that of the settings. */
  model?: Model;
}

/** The service as part of your process, without an HTTP server of its own. */
export interface EmbeddedRuntime {
  /**
   * Handles HTTP requests. Use it as `http.createServer(runtime.handler)`, or in the last `app.use` of an Express
   * application.
   */
  handler: RequestListener;
  /** Accepts WebSockets for `/run_live` on your server. */
  attach(server: Server): void;
  /** The address of the database, without a password, to show to people. */
  database: string;
  /** Waits at most `SHUTDOWN_GRACE_MS` for running work, then ends all work. Idempotent. */
  close(): Promise<void>;
}

/** Starts the whole service without an HTTP server. @throws {Error} with a message that names the remedy */
export async function createRuntime(options: CreateRuntimeOptions = {}): Promise<EmbeddedRuntime> {
  const { settings = processEnvironment(), ...sources } = options;
  const config = readConfig(settings);
  const { app, ...runtime } = await openRuntime({ config, log: createLog(config.LOG_LEVEL), ...sources });
  return {
    handler: (request, response) => app(request, response),
    attach: (server) => runtime.attach(server),
    database: runtime.database,
    close: () => runtime.close(),
  };
}
