import { BaseLlm, DatabaseSessionService, FunctionTool, LlmAgent, LogLevel } from '@google/adk';
import { AdkApiServer } from '@google/adk-devtools';
import { answerTo, LOOKED_UP, LOOKUP, USAGE } from './script.js';

/** The peer: the ADK's own server with its sessions in PostgreSQL. `node servers/peer.js <port> <database url>` */

const [port, url] = process.argv.slice(2);

class InstantModel extends BaseLlm {
  constructor() {
    super({ model: 'instant' });
  }

  async *generateContentAsync({ contents }) {
    yield { content: { role: 'model', parts: answerTo(contents) }, turnComplete: true, usageMetadata: USAGE };
  }

  async connect() {
    throw new Error('not used');
  }
}

const agent = new LlmAgent({
  name: 'harness_agent',
  description: '',
  instruction: 'Answer.',
  model: new InstantModel(),
  tools: [new FunctionTool({ ...LOOKUP, execute: () => LOOKED_UP })],
});

const server = new AdkApiServer({
  port: Number(port),
  host: '127.0.0.1',
  logLevel: LogLevel.ERROR,
  sessionService: new DatabaseSessionService(url),
  agentLoader: {
    listAgents: async () => ['harness_agent'],
    getAgentFile: async () => ({ load: async () => agent, [Symbol.asyncDispose]: async () => undefined }),
    disposeAll: async () => undefined,
  },
});
await server.start();
