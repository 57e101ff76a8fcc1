import pino from 'pino';
import { logFields } from './context.ts';
import { causes, connectionReason } from '../core/errors.ts';

/** The log: JSON lines on standard error. It never contains bodies, prompts or answers. */
export type Log = pino.Logger;

/** Names of members that are redacted wherever they occur. */
const REDACTED = [
  'authorization',
  'apiKey',
  'password',
  'url',
  '*.authorization',
  '*.apiKey',
  '*.password',
  'headers.authorization',
  'req.headers.authorization',
];

/** Creates the log on standard error, because standard output is for people. @param level - pino's, or `silent` */
export function createLog(level: string, destination: pino.DestinationStream = pino.destination(2)): Log {
  const redact = { paths: REDACTED, censor: '[redacted]' };
  return pino(
    { level, base: null, mixin: logFields, serializers: { err: toLogFields }, redact, hooks: limitRepeats() },
    destination,
  );
}

/** Finds the table that a statement changes or reads, else its function or command. Excludes `extract(epoch from`. */
const TARGETS = [
  /\b(?:insert into|delete from)\s+(?:"?\w+"?\.)?"?(\w+)/i,
  /(?<!\b(?:epoch|distinct) )\b(?:from|update)\s+(?:"?\w+"?\.)?"?(\w+)/i,
  /^\s*select\s+(\w+)\(/i,
  /^\s*(begin|commit|listen)\b/i,
];

/** Returns the log fields of an error: only codes, names and reasons, because PostgreSQL's messages quote values. */
export function toLogFields(error: unknown): Record<string, unknown> {
  const chain = [...causes(error)];
  const withCode = chain.find(({ code }) => code !== undefined);
  const query = String(chain.find((cause) => cause.query !== undefined)?.query);
  const isDatabase = chain.some((cause) => 'severity' in cause || 'query' in cause);
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  return {
    name: error instanceof Error ? error.name : typeof error,
    code: withCode?.code,
    statement: TARGETS.map((target) => target.exec(query)?.[1]).find((name) => name !== undefined),
    constraint: chain.find(({ constraint }) => constraint !== undefined)?.constraint,
    reason: connectionReason(error) ?? (isDatabase || !(error instanceof Error) ? undefined : error.message),
    stack: stack
      .split('\n')
      .filter((line) => line.startsWith('    at '))
      .join('\n'),
  };
}

/** Interval in milliseconds within which failures with the same message and reason are combined into one line. */
const REPEAT_MS = 1_000;
/** Maximum number of request ids listed in a combined line; its count is always complete. */
const MAX_REQUEST_IDS = 100;

type LogCall = [fields: Record<string, unknown>, message: string | undefined];

/**
 * Logs failures with the same message and reason once per second, with their count and request ids, because an
 * unavailable database would flood the log. Unexpected errors are never suppressed.
 */
function limitRepeats(): NonNullable<pino.LoggerOptions['hooks']> {
  const recent = new Map<string, { leftOut: number; requestIds: string[]; last: LogCall }>();
  const logMethod = function (this: pino.Logger, call: unknown[], write: pino.LogFn): void {
    const key = repeatKey(call);
    if (key === undefined) return void Reflect.apply(write, this, call);
    const [fields, message] = call as LogCall;
    const entry = recent.get(key);
    if (entry) {
      entry.leftOut += 1;
      entry.last = [fields, message];
      const { requestId } = fields;
      if (typeof requestId === 'string' && entry.requestIds.length < MAX_REQUEST_IDS) entry.requestIds.push(requestId);
      return;
    }
    recent.set(key, { leftOut: 0, requestIds: [], last: [fields, message] });
    Reflect.apply(write, this, call);
    setTimeout(() => {
      const { leftOut = 0, requestIds = [], last } = recent.get(key) ?? {};
      recent.delete(key);
      if (!last || leftOut === 0) return;
      const merged = { ...last[0], repeated: leftOut, ...(requestIds.length > 0 && { requestIds }) };
      logMethod.call(this, [merged, last[1]], write);
    }, REPEAT_MS).unref();
  };
  return { logMethod };
}

/** Returns the message and reason by which failures are combined; `undefined` for a line that is never combined. */
function repeatKey([fields, message]: unknown[]): string | undefined {
  if (typeof fields !== 'object' || fields === null) return undefined;
  const reason = 'err' in fields ? connectionReason(fields.err) : (fields as { reason?: unknown }).reason;
  return reason === undefined ? undefined : JSON.stringify([message, reason]);
}
