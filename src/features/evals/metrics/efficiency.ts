import { toOverall } from './status.ts';
import { getCalls, type Turn } from './turn.ts';

/**
 * Calls, tokens and durations of a case, as means over its turns. A value is null or absent, and not 0, if it was not
 * reported. These metrics are informational: they have no threshold and do not affect the status of the case.
 */
export interface Efficiency {
  toolCallCount: number | null;
  inferenceCallCount: number | null;
  tokenUsage: Tokens | null;
  invocationDuration: Durations | null;
}

export const EFFICIENCY_METRICS = [
  'tool_call_count_v1',
  'inference_call_count_v1',
  'token_usage_v1',
  'invocation_duration_v1',
];

/** Tokens: input is prompt and tool use, output candidates and reasoning; cached tokens are part of the prompt. */
type Tokens = Partial<Record<`${TokenKind}Tokens`, number>>;
type TokenKind = 'total' | 'input' | 'prompt' | 'cached' | 'toolUse' | 'output' | 'candidates' | 'reasoning';

/** Durations in seconds with three decimals. `frameworkSeconds` is the total without the time of models and tools. */
type Durations = Partial<Record<'totalSeconds' | 'modelSeconds' | 'toolSeconds' | 'frameworkSeconds', number>>;

export const toEfficiency = (turns: Turn[]): Efficiency => ({
  toolCallCount: toOverall(turns.map(({ intermediateData }) => getCalls(intermediateData).length)),
  inferenceCallCount: toOverall(turns.map(countInferenceCalls)),
  tokenUsage: turns.length === 0 ? null : toMeans(turns.map(countTokens), turns.length),
  invocationDuration: turns.length === 0 ? null : rounded(toMeans(turns.map(toDurations))),
});

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);

/** Counts model calls: events with token usage or a model version. Null for turns of ADK 1.x, which have neither. */
const countInferenceCalls = ({ intermediateData }: Turn): number | null =>
  intermediateData?.invocationEvents?.filter((event) => event.usageMetadata != null || event.modelVersion != null)
    .length ?? null;

type TokenCount =
  | 'promptTokenCount'
  | 'toolUsePromptTokenCount'
  | 'cachedContentTokenCount'
  | 'candidatesTokenCount'
  | 'thoughtsTokenCount';

function countTokens({ intermediateData }: Turn): Tokens {
  const usages = (intermediateData?.invocationEvents ?? []).flatMap(({ usageMetadata }) =>
    usageMetadata ? [usageMetadata] : [],
  );
  const total = (kinds: TokenCount[]) => {
    const counts = usages.flatMap((usage) => kinds.flatMap((kind) => usage[kind] ?? []));
    return counts.length > 0 ? sum(counts) : undefined;
  };
  const input: TokenCount[] = ['promptTokenCount', 'toolUsePromptTokenCount'];
  const output: TokenCount[] = ['candidatesTokenCount', 'thoughtsTokenCount'];
  return present({
    // The provider's own total is ignored, because providers count it differently.
    totalTokens: total([...input, ...output]),
    inputTokens: total(input),
    promptTokens: total(['promptTokenCount']),
    cachedTokens: total(['cachedContentTokenCount']),
    toolUseTokens: total(['toolUsePromptTokenCount']),
    outputTokens: total(output),
    candidatesTokens: total(['candidatesTokenCount']),
    reasoningTokens: total(['thoughtsTokenCount']),
  });
}

function toDurations({ duration, modelDuration, toolDuration }: Turn): Durations {
  if (duration == null) return {};
  const rest = duration - (modelDuration ?? 0) - (toolDuration ?? 0);
  return present({
    totalSeconds: duration,
    modelSeconds: modelDuration ?? undefined,
    toolSeconds: toolDuration ?? undefined,
    // Absent if the models' or the tools' duration is unknown, because the remainder would include that time.
    frameworkSeconds: modelDuration == null || toolDuration == null ? undefined : Math.max(0, rest),
  });
}

type Figured = Record<string, number>;
const present = <Details>(details: { [Name in keyof Details]: Details[Name] | undefined }): Details =>
  Object.fromEntries(Object.entries(details).filter(([, value]) => value !== undefined)) as Details;

/** Mean of each property: its sum over the turns that have it, divided by `count`; default: their number. */
function toMeans<Details extends object>(turns: Details[], count?: number): Details {
  const names = new Set(turns.flatMap((turn) => Object.keys(turn)));
  const means = [...names].map((name) => {
    const figures = turns.flatMap((turn) => (turn as Figured)[name] ?? []);
    return [name, sum(figures) / (count ?? figures.length)];
  });
  return Object.fromEntries(means) as Details;
}

const rounded = (durations: Durations): Durations =>
  Object.fromEntries(Object.entries(durations).map(([name, seconds]) => [name, Math.round(seconds * 1000) / 1000]));
