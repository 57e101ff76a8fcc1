import { type Content, type FunctionCall, getFunctionCalls, getParts } from '../../../core/content.ts';
import type { EvalCaseBody } from './eval-set.ts';
import { getCalls, toToolUses } from '../metrics/turn.ts';

type EvalTurnBody = NonNullable<EvalCaseBody['conversation']>[number];
type IntermediateData = NonNullable<EvalTurnBody['intermediateData']>;

/**
 * Stores `invocationEvents` or the properties of ADK 1.x, because every ADK refuses a turn with both. If `toolUses` has
 * an entry for each call, it gives the arguments, because the ADK Web UI edits arguments there.
 */
export const toStoredCase = (evalCase: EvalCaseBody): EvalCaseBody => mapData(evalCase, withoutToolUses);

/** Adds to a case the properties of ADK 1.x next to its events, because the ADK Web UI reads these properties. */
export const withToolUses = (evalCase: EvalCaseBody): EvalCaseBody =>
  mapData(evalCase, (data) => (data.invocationEvents ? { ...data, ...toToolUses(data) } : data));

function mapData(evalCase: EvalCaseBody, change: (data: IntermediateData) => IntermediateData): EvalCaseBody {
  if (!evalCase.conversation) return evalCase;
  const conversation = evalCase.conversation.map((turn) =>
    turn.intermediateData ? { ...turn, intermediateData: change(turn.intermediateData) } : turn,
  );
  return { ...evalCase, conversation };
}

function withoutToolUses(data: IntermediateData): IntermediateData {
  if (!data.invocationEvents) return data;
  const { toolUses, toolResponses: _responses, intermediateResponses: _texts, ...eventData } = data;
  const calls = getCalls(eventData);
  if (!toolUses || toolUses.length !== calls.length) return eventData;
  const editedArgs = new Map(calls.map((call, index) => [call, toolUses[index]?.args]));
  const invocationEvents = data.invocationEvents.map((event) => withArguments(event, editedArgs));
  return { ...eventData, invocationEvents };
}

function withArguments<EventOfTurn extends { content?: Content | null | undefined }>(
  event: EventOfTurn,
  editedArgs: Map<FunctionCall, FunctionCall['args']>,
): EventOfTurn {
  if (getFunctionCalls(event.content).length === 0) return event;
  const parts = getParts(event.content).map((part) => {
    if (!part.functionCall || !editedArgs.has(part.functionCall)) return part;
    const { args: _before, ...call } = part.functionCall;
    const args = editedArgs.get(part.functionCall);
    return { ...part, functionCall: args == null ? call : { ...call, args } };
  });
  return { ...event, content: { ...event.content, parts } };
}
