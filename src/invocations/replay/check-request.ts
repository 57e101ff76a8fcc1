import type { ModelRequest } from '../../agent/definition/model.ts';
import type { AgentNode } from '../../agent/definition/tool.ts';
import type { ToolServices } from '../../agent/definition/services.ts';
import { renderInstruction } from '../../agent/loop/instruction.ts';
import type { ObservedAgent } from '../../agent/loop/run.ts';
import { withTransfer } from '../../agent/loop/agent-tree.ts';
import type { JsonObject } from '../../core/content.ts';
import { type JsonDifference, jsonDifference } from '../../core/json-difference.ts';
import { type AgentPrompt, contentsDigest, instructionDigest, type Tape, toPrompt } from '../tape.ts';

/** A model call of the replay, with the values needed to render the stored instruction. */
interface MadeCall {
  agent: ObservedAgent;
  request: ModelRequest;
  state: JsonObject;
  services: Pick<ToolServices, 'loadArtifact'>;
}

/** Returns the model calls that one agent made on a tape, in order. */
export const getCalls = ({ payload }: Tape, agentName: string): Tape['payload']['calls'] =>
  payload.calls.filter(([prompt]) => payload.prompts[prompt]?.[0] === agentName);

/** The first difference between the stored and the replayed request to a model; `undefined` if they are equal. */
export async function requestDifference(
  tape: Tape,
  [place, contents, instruction]: Tape['payload']['calls'][number],
  call: MadeCall,
): Promise<JsonDifference | undefined> {
  const { agent, request } = call;
  const hash = tape.payload.prompts[place]?.[1] ?? '';
  const now = toPrompt(agent, request);
  const prompt = tape.prompts.get(hash);
  if (!prompt && now.hash !== hash) return { path: '/request', before: notKept(hash), after: notKept(now.hash) };
  if (instructionDigest(request.instruction) !== instruction) {
    const before = prompt && (await renderBefore(tape, prompt, call));
    const isKnown = before !== undefined && instructionDigest(before) === instruction;
    return {
      path: '/request/instruction',
      before: isKnown ? before : notKept(instruction),
      after: request.instruction,
    };
  }
  const difference = prompt && jsonDifference(declared(prompt), declared(now.prompt), '/request');
  if (difference) return difference;
  const digest = contentsDigest(request.contents);
  return digest === contents
    ? undefined
    : { path: '/request/contents', before: notKept(contents), after: notKept(digest) };
}

/**
 * Like {@link requestDifference}, for an agent used as a tool and its sub-agents. A replay does not run these agents,
 * so it compares their instruction templates. `skip` is called with the reason if a template cannot be compared.
 */
export function toolAgentDifference(
  tape: Tape,
  root: AgentNode,
  skip: (reason: string) => void,
  agent: AgentNode = root,
): JsonDifference | undefined {
  const [, hash] = tape.payload.prompts.find(([name]) => name === agent.name) ?? [];
  const prompt = tape.prompts.get(hash ?? '');
  const path = `/request/agents/${agent.name}`;
  const now = toPrompt(withTransfer(root, agent), agent);
  if (hash !== undefined && !prompt && now.hash !== hash)
    skip(`What \`${agent.name}\` was given is not kept any more, so it was not compared.`);
  const difference =
    prompt &&
    (jsonDifference(templates(prompt), templates(now.prompt), path) ??
      jsonDifference(declared(prompt), declared(now.prompt), path));
  if (difference) return difference;
  const toolAgents = agent.tools.flatMap(({ calls }) => (typeof calls === 'object' ? [calls] : []));
  const below = [
    ...agent.subAgents.map((one) => [root, one] as const),
    ...toolAgents.map((one) => [one, one] as const),
  ];
  return below.map(([top, one]) => toolAgentDifference(tape, top, skip, one)).find((one) => one !== undefined);
}

const templates = ({ instruction, appendedInstruction }: AgentPrompt) => ({ instruction, appendedInstruction });

/** Replaces a value of which only a digest is stored: a difference can be detected, but not shown. */
const notKept = (digest: string) => ({ digest });

/** The parts of a prompt that the model receives in addition to the instruction. */
const declared = ({ tools, modelName, sampling, outputSchema, hooks }: AgentPrompt) => ({
  tools: tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
  modelName,
  sampling,
  ...(outputSchema && { outputSchema }),
  ...(hooks && { hooks }),
});

/** The stored instruction with the original run's state values; `undefined` if it cannot be rendered. */
async function renderBefore(
  { payload }: Tape,
  { instruction = payload.overrides.instruction, appendedInstruction }: AgentPrompt,
  { state, services }: MadeCall,
): Promise<string | undefined> {
  if (instruction === undefined) return undefined;
  const rendered = await renderInstruction(instruction, state, services).catch(() => undefined);
  return rendered === undefined ? undefined : rendered + appendedInstruction;
}
