import pino from 'pino';
import { causes } from './errors.ts';

/** The log: JSON lines on standard error. Bodies, prompts and answers are never given to it. */
export type Log = pino.Logger;

/** What must not reach a log line, wherever a caller might put it. */
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

/** Creates the log; `level` is one of pino's, `silent` for none. Standard output stays free for what a person reads. */
export function createLog(level: string): Log {
  return pino(
    { level, base: null, serializers: { err: toLogFields }, redact: { paths: REDACTED, censor: '[redacted]' } },
    pino.destination(2),
  );
}

/**
 * What the log keeps of an error. Messages of drizzle and pg quote statements and values, so of those only codes and
 * names stay.
 */
export function toLogFields(error: unknown): Record<string, unknown> {
  const chain = [...causes(error)];
  const withCode = chain.find(({ code }) => code !== undefined);
  const isDatabase = chain.some((cause) => 'severity' in cause || 'query' in cause);
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  return {
    name: error instanceof Error ? error.name : typeof error,
    code: withCode?.code,
    constraint: chain.find(({ constraint }) => constraint !== undefined)?.constraint,
    ...(isDatabase ? {} : { reason: error instanceof Error ? error.message : undefined }),
    stack: stack
      .split('\n')
      .filter((line) => line.startsWith('    at '))
      .join('\n'),
  };
}
