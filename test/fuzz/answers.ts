import type { ValidateFunction } from 'ajv/dist/2020.js';
import type { Schema } from './arbitrary.ts';
import type { Documented, Made } from './requests.ts';

/** An answer as it came. */
export interface Received {
  status: number;
  /** Its media type, without parameters. */
  type: string | undefined;
  text: string;
}

/** Says what is wrong with the answer to a request; `undefined` where nothing is. */
export type Check = (request: Made, received: Received) => object | undefined;

/** What the frames of streams hold, which the document has as text. */
const FRAMES: Record<string, string> = {
  runAgentSse: 'Event',
  invokeLegacy: 'Event',
  streamEvents: 'Event',
  streamEvalRun: 'EvalRun',
};

/** A check of the answers of one operation. */
export function answerCheck(
  { operationId, responses }: Documented,
  compile: (schema: Schema) => ValidateFunction,
): Check {
  const frame = FRAMES[operationId];
  const isFrame = frame === undefined ? undefined : compile({ $ref: `#/components/schemas/${frame}` });
  const schemas = new Map(
    Object.entries(responses).map(([status, { content }]) => {
      const schema = content?.['application/json']?.schema;
      return [status, schema && compile(schema)] as const;
    }),
  );
  return (request, { status, type, text }) => {
    const answer = { status, text: text.slice(0, 1_000) };
    if (status >= 500) return { why: 'a failure', answer };
    if (!schemas.has(String(status))) return { why: 'a status that is not documented', answer };
    const media = responses[status]?.content ?? {};
    if (type !== undefined && !Object.keys(media).includes(type))
      return { why: `an undocumented type ${type}`, answer };
    const isMatch = schemas.get(String(status));
    if (type === 'application/json' && isMatch && !isMatch(JSON.parse(text))) {
      return { why: 'an answer that its schema refuses', errors: isMatch.errors, answer };
    }
    if (type === 'text/event-stream') return isFrame && frameFault(text, isFrame);
    if (type === 'application/x-ndjson') for (const line of text.trimEnd().split('\n')) JSON.parse(line);
    if (status === 422) {
      const why = refusalFault(request, text);
      return why === undefined ? undefined : { why, answer };
    }
    // JSON-RPC says in its own error what is wrong.
    const isRefused = status >= 400 || text.startsWith('{"jsonrpc":"2.0","id":null,"error":');
    if (request.fault && !isRefused) return { why: `a fault at ${request.fault.join('.')} was accepted`, answer };
    return undefined;
  };
}

/** Says which frame of a stream is wrong: each is one line of JSON, before it at most its type and its place. */
function frameFault(text: string, isFrame: ValidateFunction): object | undefined {
  for (const frame of text.split('\n\n').slice(0, -1)) {
    const [, type, data] = /^(?:event: (\w+)\n)?(?:id: \d+\n)?data: ([^\r\n]*)$/.exec(frame) ?? [];
    if (data === undefined) return { why: 'a frame that is none', frame };
    const value = JSON.parse(data) as { error?: unknown; detail?: unknown };
    const isSentence = typeof (type === undefined ? value.error : value.detail) === 'string';
    if (!isSentence && !isFrame(value))
      return { why: 'a frame that its schema refuses', errors: isFrame.errors, frame };
  }
  return text.endsWith('\n\n') || text === '' ? undefined : { why: 'a stream that ends within a frame', text };
}

/** Says why a 422 does not name the fault's place, or a place that the request has. */
function refusalFault({ fault, sent }: Made, text: string): string | undefined {
  const { detail } = JSON.parse(text) as { detail: { loc: (string | number)[]; type: string }[] };
  if (detail.length === 0) return 'no place is named';
  if (fault) {
    // A union's places go on with the name of its member; a missing or wrong member is named by itself.
    const isNamed = detail.some(({ loc }) => fault.every((part, index) => String(loc[index]) === String(part)));
    // A path that names nothing (`.`) is refused before the body is read.
    const isBefore = fault[0] === 'body' && detail.every(({ loc: [where] }) => where === 'path');
    return isNamed || isBefore ? undefined : `the fault is at ${fault.join('.')}`;
  }
  const lost = detail.find(({ loc: [where, ...rest] }) => where === 'body' && !hasPlace(sent, rest));
  return lost && `there is no ${lost.loc.join('.')}`;
}

/** True for a place in a value, or one member that its object lacks; what follows may name a member of a union. */
function hasPlace(value: unknown, [part, ...rest]: (string | number)[]): boolean {
  if (part === undefined || typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value))
    return typeof part !== 'number' || part < value.length ? hasPlace(value[part as number], rest) : false;
  return Object.hasOwn(value, part) ? hasPlace((value as Record<string, unknown>)[part], rest) : rest.length <= 1;
}
