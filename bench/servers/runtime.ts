import { describeAgent, type HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import { defineTool } from '../../src/agent/definition/agent-module.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../../src/agent/definition/model.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import { readConfig } from '../../src/process/config.ts';
import type { Content } from '../../src/core/content.ts';
import { createLog } from '../../src/platform/log.ts';
import { startRuntime } from '../../src/process/runtime.ts';
import { createModel } from '../../src/agent/models/create-model.ts';
import { answerTo, isForHttp, LOOKED_UP, LOOKUP, USAGE } from './script.js';

/**
 * The runtime as `npm start` has it, but for a model that answers at once, in this process or over HTTP.
 * `node servers/start.ts <port> <url of the database> <url of the model>`
 */

const [port = '0', url = '', modelUrl = ''] = process.argv.slice(2);
const http = createModel({ provider: 'openai-compatible', baseUrl: `${modelUrl}/v1` });

async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const { contents } = request;
  if (isForHttp(contents)) return yield* http.generate(request);
  const content = { role: 'model', parts: answerTo(contents) } as Content;
  return { content, modelVersion: 'instant', finishReason: 'STOP', usageMetadata: USAGE };
}

const model: Model = { provider: 'instant', generate };
const lookup = defineTool({ ...LOOKUP, run: async () => LOOKED_UP });
const definition: AgentDefinition = {
  name: 'harness_agent',
  description: '',
  instruction: 'Answer.',
  modelName: 'instant',
  tools: [lookup.name],
  skills: [],
  mcpServers: [],
  sampling: {},
  maxLlmCalls: 100,
};
const tools = new Map([[lookup.name, lookup]]);
const environment = { model, modelName: 'instant', builtInTools: tools };
const agent = {
  name: definition.name,
  version: { digest: 'test', definition: {} },
  hasLiveApi: false,
  prepare: (...[overrides, signal, userId]: Parameters<HostedAgent['prepare']>) =>
    prepareAgent(definition, overrides, environment, signal, userId),
  describe: () => describeAgent(definition, tools, 'instant'),
};
const config = readConfig({
  DATABASE_URL: url,
  PORT: port,
  LOG_LEVEL: 'warn',
  MAX_INVOCATIONS: '64',
  SESSION_QUEUE_DEPTH: '64',
});
await startRuntime({
  config,
  log: createLog(config.LOG_LEVEL),

  overrides: { agents: new Map([[agent.name, agent]]) },
});
