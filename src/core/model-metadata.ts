import { z } from 'zod';
import { number, openEnum, text } from './members.ts';

/** Metadata that a provider sends with an answer: tokens, citations, log probabilities. */

const tokensByModality = (meaning: string) =>
  z
    .array(
      z.looseObject({
        modality: openEnum('MODALITY_UNSPECIFIED', 'Text, image, audio, video or document.'),
        tokenCount: number('Number of tokens of this modality.'),
      }),
    )
    .nullish()
    .describe(meaning);

/** The specification's UsageMetadata. */
export const usageMetadataSchema = z
  .looseObject({
    cachedContentTokenCount: number("Tokens of the prompt that came from the provider's cache."),
    candidatesTokenCount: number('Tokens of the answer, thoughts left out.'),
    promptTokenCount: number('Tokens of the prompt, cached ones included.'),
    thoughtsTokenCount: number('Tokens of reasoning, billed as output by most providers.'),
    toolUsePromptTokenCount: number('Tokens of results of tools that the provider ran itself.'),
    totalTokenCount: number('Tokens of prompt, answer and reasoning together.'),
    trafficType: openEnum('TRAFFIC_TYPE_UNSPECIFIED', 'Whether the call used provisioned capacity; Google only.'),
    cacheTokensDetails: tokensByModality('`cachedContentTokenCount` by modality; Google only.'),
    candidatesTokensDetails: tokensByModality('`candidatesTokenCount` by modality; Google only.'),
    promptTokensDetails: tokensByModality('`promptTokenCount` by modality; Google only.'),
    toolUsePromptTokensDetails: tokensByModality('`toolUsePromptTokenCount` by modality; Google only.'),
  })
  .describe('Tokens that one model call used, as the provider counts them.');

const citation = z.looseObject({
  startIndex: number('Where the cited span begins in the answer, as the provider counts.'),
  endIndex: number('Where the cited span ends, exclusive.'),
  license: text('Licence of the source.'),
  title: text('Title of the source.'),
  uri: text('Address of the source.'),
  publicationDate: z
    .looseObject({
      day: number('Day of the month, from 1; 0 or absent where only the month is known.'),
      month: number('Month, 1 to 12; 0 or absent where only the year is known.'),
      year: number('Year, four digits.'),
    })
    .nullish()
    .describe('When the source was published.'),
});

/** Member `citationMetadata` of an event. */
export const citationMetadata = z.looseObject({
  citations: z.array(citation).nullish().describe('The sources, in the order in which the provider names them.'),
});

const candidate = z
  .looseObject({
    logProbability: number('Natural logarithm of its probability.'),
    token: text('Its text.'),
    tokenId: number("Its number in the model's vocabulary."),
  })
  .describe('One token that the model considered.');

/** Member `logprobsResult` of an event. */
export const logprobsResult = z.looseObject({
  chosenCandidates: z.array(candidate).nullish().describe('The token that was chosen at each step.'),
  topCandidates: z
    .array(
      z.looseObject({
        candidates: z.array(candidate).nullish().describe('The tokens of one step, most likely first.'),
      }),
    )
    .nullish()
    .describe('The most likely tokens of each step.'),
  logProbabilitySum: number('Sum over the chosen tokens.'),
});

/** Tokens of one model call; prompt tokens include cached ones, answer tokens leave thoughts out. */
export type UsageMetadata = z.infer<typeof usageMetadataSchema>;
