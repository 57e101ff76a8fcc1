import { z } from 'zod';

/** GroundingMetadata of an event: where an answer's claims come from, member by member as the specification lists them. */

const text = () => z.string().nullish();
const number = () => z.number().nullish();
const texts = () => z.array(z.string()).nullish();
const numbers = () => z.array(z.number()).nullish();

const review = z.looseObject({
  authorAttribution: z.looseObject({ displayName: text(), photoUri: text(), uri: text() }).nullish(),
  flagContentUri: text(),
  googleMapsUri: text(),
  relativePublishTimeDescription: text(),
  review: text(),
  reviewId: text(),
  title: text(),
});

const maps = z.looseObject({
  placeId: text(),
  text: text(),
  title: text(),
  uri: text(),
  route: z.looseObject({ distanceMeters: number(), duration: text(), encodedPolyline: text() }).nullish(),
  placeAnswerSources: z
    .looseObject({
      flagContentUri: text(),
      reviewSnippet: z.array(review).nullish(),
      reviewSnippets: z.array(review).nullish(),
    })
    .nullish(),
});

const retrievedContext = z.looseObject({
  documentName: text(),
  text: text(),
  title: text(),
  uri: text(),
  fileSearchStore: text(),
  mediaId: text(),
  pageNumber: number(),
  ragChunk: z
    .looseObject({
      pageSpan: z.looseObject({ firstPage: number(), lastPage: number() }).nullish(),
      text: text(),
      chunkId: text(),
      fileId: text(),
    })
    .nullish(),
  customMetadata: z
    .array(
      z.looseObject({
        key: text(),
        numericValue: number(),
        stringValue: text(),
        stringListValue: z.looseObject({ values: texts() }).nullish(),
      }),
    )
    .nullish(),
});

const groundingChunk = z
  .looseObject({
    image: z.looseObject({ sourceUri: text(), imageUri: text(), title: text(), domain: text() }).nullish(),
    web: z.looseObject({ domain: text(), title: text(), uri: text() }).nullish(),
    maps: maps.nullish(),
    retrievedContext: retrievedContext.nullish(),
  })
  .describe('One source; it has one or more of its members.');

const groundingSupport = z
  .looseObject({
    confidenceScores: numbers(),
    groundingChunkIndices: numbers(),
    renderedParts: numbers(),
    segment: z.looseObject({ startIndex: number(), endIndex: number(), partIndex: number(), text: text() }).nullish(),
  })
  .describe('A span of the answer and the chunks that support it.');

export const groundingMetadataSchema = z
  .looseObject({
    imageSearchQueries: texts(),
    webSearchQueries: texts(),
    retrievalQueries: texts(),
    googleMapsWidgetContextToken: text(),
    retrievalMetadata: z.looseObject({ googleSearchDynamicRetrievalScore: number() }).nullish(),
    searchEntryPoint: z.looseObject({ renderedContent: text(), sdkBlob: text() }).nullish(),
    sourceFlaggingUris: z.array(z.looseObject({ flagContentUri: text(), sourceId: text() })).nullish(),
    groundingSupports: z.array(groundingSupport).nullish(),
    groundingChunks: z.array(groundingChunk).nullish(),
  })
  .describe('Where the answer comes from.');
