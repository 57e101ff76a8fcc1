import { z } from 'zod';

/** Where answers of a model or of tools come from in a run: as the agent is deployed, or from the case. */
export type ExecutionMode = 'live' | 'stored';

/** Both modes of a run. */
export interface ExecutionModes {
  modelExecutionMode: ExecutionMode;
  toolExecutionMode: ExecutionMode;
}

/** A mode as clients write it; `replay` is the word of the ADK Web UI for `stored`. */
const SENT_MODES = ['live', 'replay', 'stored'] as const;
type SentMode = (typeof SENT_MODES)[number];

const mode = (meaning: string) => z.enum(SENT_MODES).nullish().describe(meaning);
const OF_MODEL = 'Where the answers of the model come from: the model, or the cases (`replay`, which is `stored`)';
const OF_TOOLS = 'Where the answers of tools come from: the tools, or the cases (`replay`, which is `stored`)';

/** Members of a request for a run; what is left out is as the set says. */
export const modesOfRun = {
  modelExecutionMode: mode(`${OF_MODEL} [that of the set].`),
  toolExecutionMode: mode(`${OF_TOOLS} [that of the set].`),
};

/** Members of a set, whose own members are snake_case: the modes of its runs that name none. */
export const modesOfSet = {
  model_execution_mode: mode(`${OF_MODEL} [\`live\`].`),
  tool_execution_mode: mode(`${OF_TOOLS} [\`live\`].`),
};

/** The mode that a run has, from what its request and its set say. */
export const toExecutionMode = (...sent: (SentMode | null | undefined)[]): ExecutionMode =>
  (sent.find((one) => one != null) ?? 'live') === 'live' ? 'live' : 'stored';
