import type { Sampling } from './model.ts';

/** Sampling parameters as written in `harness.yaml` and in the overrides of a request. */
interface WrittenSampling {
  temperature?: number | null | undefined;
  top_p?: number | null | undefined;
  max_tokens?: number | null | undefined;
  presence_penalty?: number | null | undefined;
  frequency_penalty?: number | null | undefined;
  seed?: number | undefined;
  stop?: string[] | undefined;
  reasoning_effort?: Sampling['reasoningEffort'] | undefined;
  prompt_caching?: boolean | undefined;
}

export const toSampling = (written: WrittenSampling): Sampling =>
  withoutAbsent({
    temperature: written.temperature,
    topP: written.top_p,
    maxOutputTokens: written.max_tokens,
    presencePenalty: written.presence_penalty,
    frequencyPenalty: written.frequency_penalty,
    seed: written.seed,
    stopSequences: written.stop,
    reasoningEffort: written.reasoning_effort,
    promptCaching: written.prompt_caching,
  });

type RequiredKeys<T> = {
  [Key in keyof T]-?: undefined extends T[Key] ? never : null extends T[Key] ? never : Key;
}[keyof T];
type Present<T> = { [Key in keyof T]: NonNullable<T[Key]> };

/** Returns an object without its undefined and null members. */
export function withoutAbsent<T extends object>(value: T): Partial<Present<T>> & Pick<Present<T>, RequiredKeys<T>> {
  return Object.fromEntries(
    Object.entries(value).filter(([, member]) => member !== undefined && member !== null),
  ) as never;
}
