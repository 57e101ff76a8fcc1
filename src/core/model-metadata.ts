import { z } from 'zod';
import { bodyList, name, number, numbers, object, objects, openEnum, text, texts, strictObject } from './members.ts';

/** Metadata that a model provider sends with an answer. */

const tokensByModality = (meaning: string) =>
  objects(meaning, {
    modality: openEnum('MODALITY_UNSPECIFIED', 'Text, image, audio, video or document.'),
    tokenCount: number('Number of tokens of this modality.'),
  });

export const usageMetadataSchema = strictObject('Tokens that one model call used, as the provider counts them.', {
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
});

const citation = z.strictObject({
  startIndex: number('Where the cited span begins in the answer, as the provider counts.'),
  endIndex: number('Where the cited span ends, exclusive.'),
  license: text('Licence of the source.'),
  title: text('Title of the source.'),
  uri: text('Address of the source.'),
  publicationDate: object('When the source was published.', {
    day: number('Day of the month, from 1; 0 or absent where only the month is known.'),
    month: number('Month, 1 to 12; 0 or absent where only the year is known.'),
    year: number('Year, four digits.'),
  }),
});

export const citationMetadata = z.strictObject({
  citations: bodyList(citation).nullish().describe('The sources, in the order in which the provider names them.'),
});

const candidate = strictObject('One token that the model considered.', {
  logProbability: number('Natural logarithm of its probability.'),
  token: text('Its text.'),
  tokenId: number("Its number in the model's vocabulary."),
});

export const logprobsResult = z.strictObject({
  chosenCandidates: bodyList(candidate).nullish().describe('The token that was chosen at each step.'),
  topCandidates: objects('The most likely tokens of each step.', {
    candidates: bodyList(candidate).nullish().describe('The tokens of one step, most likely first.'),
  }),
  logProbabilitySum: number('Sum over the chosen tokens.'),
});

/** Prompt tokens include cached tokens; answer tokens do not include thoughts. */
export type UsageMetadata = z.infer<typeof usageMetadataSchema>;

// GroundingMetadata of the specification, stored as Google's models send it and never read here.

const authorAttribution = z.strictObject({
  displayName: name("The author's name to show."),
  photoUri: text("Address of the author's picture."),
  uri: text("Address of the author's page."),
});

const review = z.strictObject({
  authorAttribution: authorAttribution.nullish().describe('Who wrote the review; to be shown with it.'),
  flagContentUri: text('Where a reader can report the review.'),
  googleMapsUri: text('The review on Google Maps.'),
  relativePublishTimeDescription: text('Age of the review in words, for example "a month ago".'),
  review: text('Resource name of the review.'),
  reviewId: text('Identifier of the review.'),
  title: text('Title of the review.'),
});

const maps = z.strictObject({
  placeId: text('Resource name of the place, `places/{id}`.'),
  text: text('What the source says about the place.'),
  title: text('Name of the place.'),
  uri: text('The place on Google Maps.'),
  route: object('A route that the answer is about.', {
    distanceMeters: number('Length in metres.'),
    duration: text('Travel time, seconds with an `s`, for example `600s`.'),
    encodedPolyline: text('Course of the route in the encoded polyline format.'),
  }),
  placeAnswerSources: object('What the answer about the place rests on.', {
    flagContentUri: text('Where a reader can report the content.'),
    reviewSnippet: bodyList(review).nullish().describe('Reviews that the answer uses; another spelling of the next.'),
    reviewSnippets: bodyList(review).nullish().describe('Reviews that the answer uses.'),
  }),
});

const ragChunk = z.strictObject({
  pageSpan: object('The pages that the chunk was cut from.', {
    firstPage: number('First page, from 1, inclusive.'),
    lastPage: number('Last page, from 1, inclusive.'),
  }),
  text: text('Text of the chunk.'),
  chunkId: text('Identifier of the chunk in its corpus.'),
  fileId: text('Identifier of the file that the chunk was cut from.'),
});

const retrievedMetadata = z.strictObject({
  key: text('Name under which the value was stored.'),
  numericValue: number('The value, where it is a number.'),
  stringValue: text('The value, where it is a string.'),
  stringListValue: object('The value, where it is a list of strings.', { values: texts('The strings, in order.') }),
});

const retrievedContext = z.strictObject({
  documentName: text('Resource name of the document.'),
  text: text('The passage that was found.'),
  title: text('Title of the document.'),
  uri: text('Address of the document.'),
  fileSearchStore: text('Resource name of the store that was searched.'),
  mediaId: text('Identifier of an image in the store.'),
  pageNumber: number('Page of the passage, from 1.'),
  ragChunk: ragChunk.nullish().describe('The chunk of a retrieval corpus that the passage is.'),
  customMetadata: bodyList(retrievedMetadata).nullish().describe('What was stored with the document, key by key.'),
});

const groundingChunk = strictObject('One source; it has one or more of its members.', {
  image: object('An image found on the web.', {
    sourceUri: text('Page that shows the image.'),
    imageUri: text('Address of the image.'),
    title: text('Title of the page.'),
    domain: text('Domain of the page.'),
  }),
  web: object('A page of the web.', {
    domain: text('Domain of the page.'),
    title: text('Title of the page.'),
    uri: text("Address of the page, often the provider's redirect to it."),
  }),
  maps: maps.nullish().describe('A place on Google Maps.'),
  retrievedContext: retrievedContext.nullish().describe("A passage from the user's own documents."),
});

const groundingSupport = strictObject('A span of the answer and the chunks that support it.', {
  confidenceScores: numbers('Confidence from 0 to 1, one for each index of `groundingChunkIndices`.'),
  groundingChunkIndices: numbers('Indexes into `groundingChunks`, from 0.'),
  renderedParts: numbers("Indexes of the content's parts that the span was rendered in, from 0."),
  segment: object('The span of the answer that is supported.', {
    startIndex: number('Where the span begins in its part, in bytes of UTF-8, from 0.'),
    endIndex: number('Where the span ends in its part, in bytes, exclusive.'),
    partIndex: number("Index of the part in the event's content, from 0."),
    text: text('The span itself.'),
  }),
});

export const groundingMetadataSchema = strictObject('Where the answer comes from.', {
  imageSearchQueries: texts('Queries that the provider sent to its image search.'),
  webSearchQueries: texts('Queries that the provider sent to its web search; fit for follow-up links.'),
  retrievalQueries: texts('Queries that the provider sent to its retrieval tools.'),
  googleMapsWidgetContextToken: text('Token to draw a Google Maps widget with.'),
  retrievalMetadata: object('How the provider decided to search.', {
    googleSearchDynamicRetrievalScore: number('How likely a web search helps, from 0 to 1.'),
  }),
  searchEntryPoint: object('Search suggestions that go with the answer.', {
    renderedContent: text('HTML that shows the search suggestions; providers may require that it is shown.'),
    sdkBlob: text('Base64 of a JSON array of search term and address pairs.'),
  }),
  sourceFlaggingUris: objects('Where sources can be reported.', {
    flagContentUri: text('Where a reader can report the source.'),
    sourceId: text('Identifier of the source.'),
  }),
  groundingSupports: bodyList(groundingSupport).nullish().describe('Which span of the answer rests on which chunks.'),
  groundingChunks: bodyList(groundingChunk).nullish().describe('The sources; others refer to them by index.'),
});
