import { z } from 'zod';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import { defineTool } from '../../src/agent/definition/agent-module.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../../src/agent/definition/model.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import { describeAgent, type HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { Part } from '../../src/core/content.ts';
import { AgentError } from '../../src/core/errors.ts';
import { callPart } from './scripted-model.ts';
import type { TestApp } from './app.ts';

/** The application `shop` whose exchanges were recorded on another server: its agents, its tools and what they say. */

const price = defineTool({
  name: 'price',
  description: 'The price.',
  parameters: z.object({ sku: z.string() }),
  run: async ({ sku }) => ({ sku, eur: sku.length }),
});
const addToCart = defineTool({
  name: 'add_to_cart',
  description: 'Adds.',
  parameters: z.object({ sku: z.string(), n: z.int() }),
  run: async ({ sku, n }, { actions }) => {
    actions.stateDelta = { ...actions.stateDelta, cart: { [sku]: n } };
    return { ok: true, count: n };
  },
});
const tools = new Map([price, addToCart].map((tool) => [tool.name, tool] as const));

const agent = (name: string, more: Partial<AgentDefinition> = {}): AgentDefinition => ({
  name,
  description: '',
  instruction: '',
  modelName: 'scripted-1',
  tools: [],
  skills: [],
  mcpServers: [],
  ...more,
});
const shop = agent('root_agent', {
  instruction: 'Sell in {city}.',
  tools: [...tools.keys()],
  subAgents: [agent('billing')],
});

/** What the model says to a prompt, to the results of tools, and as a judge. */
function answerTo({ contents, modelName }: ModelRequest): { parts: Part[]; tokens: [prompt: number, out: number] } {
  if (modelName === 'judge-x') return { parts: [{ text: '{"verdict": "valid"}' }], tokens: [10, 5] };
  const last = contents.at(-1)?.parts ?? [];
  const results = last.flatMap(({ functionResponse }) => functionResponse ?? []);
  if (results.some(({ name }) => name !== 'transfer_to_agent')) {
    const sorted = (value: object) =>
      `{${Object.entries(value)
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([k, v]) => `${JSON.stringify(k)}: ${JSON.stringify(v)}`)
        .join(', ')}}`;
    const said = results.map(({ name, response }) => `${name} says ${sorted(response as object)}`);
    return { parts: [{ text: said.join('; ') }], tokens: [30, 12] };
  }
  if (results.length > 0) return { parts: [{ text: 'Your bill is paid.' }], tokens: [10, 5] };
  const prompt = last.map(({ text = '' }) => text).join('');
  if (prompt === 'boom') throw new AgentError('model_unavailable', 'The model failed.');
  const [, n, sku] = /^add (\d+) of (\S+)$/.exec(prompt) ?? [];
  const priced = (/^(?:price of (\S+)|compare (\S+) and (\S+))$/.exec(prompt) ?? []).slice(1).filter(Boolean);
  const calls = priced.map((one) => callPart('price', { sku: one }));
  if (sku) calls.push(callPart('add_to_cart', { sku, n: Number(n) }));
  if (prompt.includes('bill')) calls.push(callPart('transfer_to_agent', { agent_name: 'billing' }));
  if (calls.length === 0) return { parts: [{ text: `You said: ${prompt}` }], tokens: [10, 5] };
  return { parts: calls.length > 1 ? [{ text: 'I compare them.' }, ...calls] : calls, tokens: [20, 8] };
}

async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  yield* [];
  const {
    parts,
    tokens: [promptTokenCount, candidatesTokenCount],
  } = answerTo(request);
  const usageMetadata = {
    promptTokenCount,
    candidatesTokenCount,
    totalTokenCount: promptTokenCount + candidatesTokenCount,
  };
  return { content: { role: 'model', parts }, modelVersion: 'scripted-1', finishReason: 'STOP', usageMetadata };
}

/** Hosts the shop. */
export function recordedShop(): Map<string, HostedAgent> {
  const model: Model = { provider: 'scripted', generate };
  const environment = { model, modelName: 'scripted-1', builtInTools: tools };
  const hosted: HostedAgent = {
    name: shop.name,
    version: { digest: 'test', definition: {} },
    hasLiveApi: false,
    prepare: (overrides, signal, userId, serverTools) =>
      prepareAgent(shop, overrides, environment, signal, userId, serverTools),
    describe: () => describeAgent(shop, tools, 'scripted-1'),
  };
  return new Map([['shop', hosted]]);
}

/** The sessions that were there when the recording began, with what was said in them. */
const SESSIONS: [id: string, state: object, prompts: string[]][] = [
  ['s-plain', { city: 'Rome' }, ['Hello there']],
  ['s-tool', { city: 'Rome' }, ['price of S-1']],
  ['s-two', { city: 'Rome' }, ['compare A1 and B22', 'add 2 of A1']],
  ['s-bill', { city: 'Rome' }, ['my bill please']],
  ['s-state', { city: 'Rome', customer_name: 'Ann' }, ['Hello']],
  ['s-empty', {}, []],
];

/** Says what was said in the shop before the recording began. */
export async function openShop(app: TestApp): Promise<void> {
  for (const [sessionId, state, prompts] of SESSIONS) {
    const shared = { 'app:v': 2, 'user:lang': 'de' };
    await app.post('/apps/shop/users/u1/sessions', { sessionId, state: { ...state, ...shared } });
    for (const text of prompts) {
      const newMessage = { role: 'user', parts: [{ text }] };
      await app.post('/run', { appName: 'shop', userId: 'u1', sessionId, newMessage });
    }
  }
}
