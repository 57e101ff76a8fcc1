import type { McpServer } from '../../src/agent/definition/agent.ts';
import type { UserCredentials } from '../../src/agent/definition/services.ts';
import { CONFIRMATION_CALL } from '../../src/core/names.ts';
import { finishConsent } from '../../src/agent/mcp/mcp-consent.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../../src/core/content.ts';
import { runInput, runToEnd, userEvent } from '../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * The client that the conformance suite tests: an invocation of an agent with the suite's server, whose model calls
 * each tool once, reads what it lists, and whose person says yes, and gives access in a browser where a server wants
 * that. The last argument is the address of the server.
 */

const RUNTIME_TOOLS = new Set(['list_resources', 'read_resource', 'list_prompts', 'get_prompt']);
const url = process.argv.at(-1) ?? '';
const context = JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}') as {
  toolCalls?: { name: string; arguments: Record<string, unknown> }[];
  client_id?: string;
  client_secret?: string;
};
const { toolCalls } = context;
const scenario = process.env['MCP_CONFORMANCE_SCENARIO'] ?? '';
/** The address by which the suite knows a client that is its own description. */
const CLIENT_METADATA_URL = 'https://conformance-test.local/client-metadata.json';
const clientId = scenario === 'auth/basic-cimd' ? CLIENT_METADATA_URL : context.client_id;
const userOauth: McpServer['userOauth'] = { clientId, clientSecret: context.client_secret };

/** What the person has granted, and the consent on its way. */
const grants = new Map<string, JsonObject>();
let consent: Parameters<UserCredentials['begin']>[0] | undefined;
const credentials: UserCredentials = {
  redirectUrl: 'http://localhost:3000/callback',
  read: async (resource) => grants.get(resource),
  async renew(resource, _expired, work) {
    const fresh = await work();
    if (fresh) grants.set(resource, fresh);
    else grants.delete(resource);
    return fresh;
  },
  begin: async (begun) => void (consent = begun),
};

/** Gives access on a page as a person in a browser would. */
async function giveAccess(page: string): Promise<void> {
  const response = await fetch(page, { redirect: 'manual' });
  const { searchParams } = new URL(response.headers.get('location') ?? '');
  const [code, state, iss] = ['code', 'state', 'iss'].map((name) => searchParams.get(name) ?? undefined);
  if (!consent || state !== consent.state) throw new Error('The browser came back with another state.');
  grants.set(consent.resource, await finishConsent(consent.kept, { code: code ?? '', iss }, fetch));
}

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
/** Tools whose steps are planned: those behind a consent are there later. */
const planned = new Set<string>();
let tries = 0;
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
    const added = tools.filter(({ name }) => !planned.has(name));
    for (const { name } of added) planned.add(name);
    const own = added.filter(({ name }) => !RUNTIME_TOOLS.has(name));
    const given = steps ? undefined : toolCalls?.map((each) => callPart(each.name, each.arguments));
    steps = [
      ...(steps ?? []),
      ...(given ?? own.map(({ name, parameters }) => callPart(name, toArguments(parameters)))),
      ...added.flatMap(({ name }) => (/^list_(resources|prompts)$/.test(name) ? [callPart(name)] : [])),
    ];
    const done = history.at(-1)?.content?.parts?.[0]?.functionResponse?.name;
    const next = done === 'list_resources' || done === 'list_prompts' ? follow(done)[0] : undefined;
    // Another issuer may answer for the server by now: it is tried once more.
    const isOver = tries === 0 && tools.length === 1 && String(lastResponse()['error']).includes('still missing');
    if (isOver) tries += 1;
    const step = isOver ? callPart(tools[0]?.name ?? '') : (next ?? steps.shift());
    return step ? [step] : [{ text: 'Done.' }];
  },
]);

// The product's limits of time would only say how busy the machine is.
const timeouts = { connectMs: 2 * MINUTE, listMs: 2 * MINUTE, callMs: 2 * MINUTE };
const mcp = { egress: { allowLoopback: true }, timeouts, openCredentials: () => credentials };
let ids = 0;
for (let answer: Part | undefined, runs = 0; runs < 20; runs += 1) {
  if (answer) history.push(userEvent('', { content: { role: 'user', parts: [answer] } }));
  const definition = { name: 'agent', description: '', instruction: '', tools: [], skills: [] };
  const access = scenario.startsWith('auth/') ? { userOauth } : {};
  const mcpServers = [{ name: 'suite', url, resources: true, prompts: true, ...access }];
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
  const { url: page } = (request?.args?.['toolConfirmation'] ?? {}) as { url?: string };
  if (page !== undefined && consent) await giveAccess(page);
  answer = { functionResponse: { id: request?.id ?? '', name: CONFIRMATION_CALL, response: { confirmed: true } } };
}
