import { CONFIRMATION_CALL } from '../../src/agent/loop/confirmation.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../../src/core/content.ts';
import { runInput, runToEnd, userEvent } from '../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';

/**
 * The client that the conformance suite tests: an invocation of an agent with the suite's server, whose model calls
 * each tool once, reads what it lists, and whose person says yes. The last argument is the address of the server.
 */

const RUNTIME_TOOLS = new Set(['list_resources', 'read_resource', 'list_prompts', 'get_prompt']);
const url = process.argv.at(-1) ?? '';
const { toolCalls } = JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}') as {
  toolCalls?: { name: string; arguments: Record<string, unknown> }[];
};

/** Arguments that fit a schema of the suite's tools. */
function toArguments({ properties = {} }: { properties?: Record<string, JsonObject> }): Record<string, unknown> {
  const samples: Record<string, unknown> = {
    string: 'text',
    number: 1,
    integer: 1,
    boolean: true,
    array: [],
    object: {},
  };
  return Object.fromEntries(
    Object.entries(properties).map(([name, { type }]) => [name, samples[String(type)] ?? 'text']),
  );
}

const history = [userEvent('go')];
let steps: Part[] | undefined;
const lastResponse = () => getFunctionResponses(history.at(-1)?.content)[0]?.response ?? {};
/** What is read after a list: its first entry. */
function follow(name: string): Part[] {
  if (name === 'list_resources') {
    const [first] = (lastResponse()['resources'] ?? []) as { uri: string }[];
    return first ? [callPart('read_resource', { uri: first.uri })] : [];
  }
  const [first] = (lastResponse()['prompts'] ?? []) as { name: string; arguments?: { name: string }[] }[];
  const given = Object.fromEntries((first?.arguments ?? []).map((each) => [each.name, 'text']));
  return first ? [callPart('get_prompt', { name: first.name, arguments: given })] : [];
}

const model = scriptedModel([
  ({ tools }) => {
    const own = tools.filter(({ name }) => !RUNTIME_TOOLS.has(name));
    steps ??= [
      ...(toolCalls?.map((each) => callPart(each.name, each.arguments)) ??
        own.map(({ name, parameters }) => callPart(name, toArguments(parameters)))),
      ...tools.flatMap(({ name }) => (/^list_(resources|prompts)$/.test(name) ? [callPart(name)] : [])),
    ];
    const done = history.at(-1)?.content?.parts?.[0]?.functionResponse?.name;
    const next = done === 'list_resources' || done === 'list_prompts' ? follow(done)[0] : undefined;
    const step = next ?? steps.shift();
    return step ? [step] : [{ text: 'Done.' }];
  },
]);

// The product's limits of time would only say how busy the machine is.
const timeouts = { connectMs: 120_000, listMs: 120_000, callMs: 120_000 };
const mcp = { egress: { allowLoopback: true }, timeouts };
let ids = 0;
for (let answer: Part | undefined, runs = 0; runs < 20; runs += 1) {
  if (answer) history.push(userEvent('', { content: { role: 'user', parts: [answer] } }));
  const definition = { name: 'agent', description: '', instruction: '', tools: [], skills: [] };
  const mcpServers = [{ name: 'suite', url, resources: true, prompts: true }];
  const environment = { model, modelName: 'm', builtInTools: new Map(), mcp };
  const { signal } = new AbortController();
  const agent = await prepareAgent({ ...definition, mcpServers }, {}, environment, signal);
  const newId = () => `id-${(ids += 1)}`;
  const { events, end } = await runToEnd(runInput({ agent, history, newId }), (event) => void history.push(event));
  if (end.lastEvent && history.at(-1)?.id !== end.lastEvent.id) history.push(end.lastEvent);
  await agent.close();
  for (const { response } of events.flatMap(({ content }) => getFunctionResponses(content)))
    console.log(JSON.stringify(response));
  if (end.error) throw new Error(end.error.message);
  if (!end.paused) break;
  const asked = getFunctionCalls(history.findLast(({ longRunningToolIds }) => longRunningToolIds?.length)?.content);
  const request = asked.find(({ name }) => name === CONFIRMATION_CALL);
  answer = { functionResponse: { id: request?.id ?? '', name: CONFIRMATION_CALL, response: { confirmed: true } } };
}
