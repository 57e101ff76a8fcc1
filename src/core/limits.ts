/** Limits of one kind of input. A missing limit is that of the enclosing input, such as the request body. */
interface InputLimit {
  bytes?: number | string;
  /** Maximum number of values in one JSON text: members, elements, arrays and objects. */
  values?: number;
  /** Maximum nesting of arrays and objects. */
  depth?: number;
  /** Maximum number of items, e.g. WebSocket frames or tools of an MCP server; `why` says what is counted. */
  count?: number;
  why: string;
}

export type JsonLimits = Required<Pick<InputLimit, 'values' | 'depth'>>;

/**
 * Limits of a JSON body: more values would block the event loop, and a serializer overflows its stack at 3,000 levels.
 */
const JSON_BODY = { values: 100_000, depth: 64 };

/** The limits of all input from outside. `npm run docs:config` writes them into the table in `docs/limits.md`. */
export const INPUT_LIMITS = {
  requestBody: { bytes: 'MAX_BODY_BYTES', ...JSON_BODY, why: 'parsing more would hold up others' },
  requestBodiesOfOneCaller: { bytes: '8 × MAX_BODY_BYTES', why: 'those over 64 KiB, until their work is done' },
  lineOfAnImport: { values: 100_000, depth: 600, why: 'a row around what a tool may have answered' },
  evaluationFile: { bytes: 'MAX_BODY_BYTES', ...JSON_BODY, why: 'it is a request body' },
  artifact: { bytes: 'MAX_BODY_BYTES', why: 'of a tool too; in base64 three quarters of a body' },
  event: { bytes: 'MAX_EVENT_BYTES', why: 'media in what a user says count for the body only' },
  liveFrame: { bytes: 1_048_576, values: 2_000, depth: 64, why: 'or `MAX_BODY_BYTES`' },
  waitingFramesOfASocket: { bytes: 1_048_576, count: 8, why: 'then it is read no further' },
  waitingFramesOfAUser: { bytes: 8_388_608, why: 'the live session that brings more ends' },
  controlFramesOfASocket: { count: 10_000, why: 'pings and pongs; an hour has 240' },
  liveSession: { bytes: 268_435_456, count: 200_000, why: 'an hour of speech: 155 million bytes in 180,000' },
  mcpMessage: { bytes: 4_194_304, values: 100_000, depth: 500, count: 100, why: 'messages in one array' },
  mcpConnection: { count: 1_000, why: 'at once, 100 more in each second; of other lines four times as many' },
  mcpRequests: { count: 100, why: 'of the server on one connection: pings, and questions to a person' },
  mcpTool: { bytes: 65_536, why: 'as declared, with its schemas, in characters' },
  mcpToolList: { bytes: 1_048_576, count: 256, why: 'of one server, and of one agent; in characters' },
  mcpToolResult: {
    bytes: 'MAX_EVENT_BYTES',
    count: 1_000,
    why: 'blocks; what is too large for a prompt or an event is kept for `read_result`',
  },
  fetchedAnswer: { bytes: 4_194_304, why: 'of a tool or an MCP server' },
  fetchedAnswersOfAUser: { bytes: 33_554_432, why: 'that are on their way at once' },
  modelAnswer: { bytes: 67_108_864, values: 100_000, depth: 500, why: '300 bytes come around each token' },
  modelLiveMessage: { bytes: 16_777_216, count: 64, why: 'the messages that wait' },
  argumentsOfACall: { bytes: 'MAX_EVENT_BYTES', ...JSON_BODY, why: 'as a request body' },
} as const satisfies Record<string, InputLimit>;
