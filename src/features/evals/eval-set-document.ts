import type { EvalCaseBody } from './eval-set.ts';

/** A set as it stands in a file and in an answer: its own members are snake_case. Times in Unix seconds. */
export interface EvalSetDocument {
  eval_set_id: string;
  name?: string | null | undefined;
  description?: string | null | undefined;
  eval_cases: EvalCaseBody[];
  creation_timestamp?: number | null | undefined;
  model_execution_mode?: string | null | undefined;
  tool_execution_mode?: string | null | undefined;
}

/** What cannot be computed from a file: the id and time of what ADK 1.x did not name. */
export interface FileDefaults {
  evalSetId: string;
  now: number;
  newId: () => string;
}
