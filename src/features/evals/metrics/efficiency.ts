import { toOverall } from './status.ts';
import { getCalls, type Turn } from './turn.ts';

/**
 * Calls, tokens and times of a case, each the mean of its turns; null where nothing is known, and what was not reported
 * is absent, not 0. They inform: no threshold, no part in the status of the case.
 */
export interface Efficiency {
  toolCallCount: number | null;
  inferenceCallCount: number | null;
  tokenUsage: Tokens | null;
  invocationDuration: Durations | null;
}

/** The metrics that ADK adds to each run; they refuse a threshold. */
export const EFFICIENCY_METRICS = [
  'tool_call_count_v1',
  'inference_call_count_v1',
  'token_usage_v1',
  'invocation_duration_v1',
];

/** Tokens; input is prompt and tool use, output candidates and reasoning, cached ones are part of the prompt. */
type Tokens = Partial<Record<`${TokenKind}Tokens`, number>>;
type TokenKind = 'total' | 'input' | 'prompt' | 'cached' | 'toolUse' | 'output' | 'candidates' | 'reasoning';

/** Seconds, three decimals; `frameworkSeconds` is what neither a model nor a tool took. */
type Durations = Partial<Record<'totalSeconds' | 'modelSeconds' | 'toolSeconds' | 'frameworkSeconds', number>>;

/** The efficiency of a conversation, from its events and its durations alone. */
export const toEfficiency = (turns: Turn[]): Efficiency => ({
  toolCallCount: toOverall(turns.map(({ intermediateData }) => getCalls(intermediateData).length)),
  inferenceCallCount: toOverall(turns.map(countInferenceCalls)),
  tokenUsage: turns.length === 0 ? null : toMeans(turns.map(countTokens), turns.length),
  invocationDuration: turns.length === 0 ? null : rounded(toMeans(turns.map(toDurations))),
});

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);

/** Answers of a model carry usage or a model version; the form of ADK 1.x does not say. */
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
    const reported = usages.flatMap((usage) => kinds.flatMap((kind) => usage[kind] ?? []));
    return reported.length > 0 ? sum(reported) : undefined;
  };
  const input: TokenCount[] = ['promptTokenCount', 'toolUsePromptTokenCount'];
  const output: TokenCount[] = ['candidatesTokenCount', 'thoughtsTokenCount'];
  return present({
    // The total that a provider reports is not used: providers count it in different ways.
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
    // Of one side alone it is not known how much of the rest is the other's.
    frameworkSeconds: modelDuration == null || toolDuration == null ? undefined : Math.max(0, rest),
  });
}

type Figured = Record<string, number>;
const present = <Details>(details: { [Name in keyof Details]: Details[Name] | undefined }): Details =>
  Object.fromEntries(Object.entries(details).filter(([, value]) => value !== undefined)) as Details;

/** The sum of each member over the turns that have it, divided by `count`, else by how many these are. */
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
