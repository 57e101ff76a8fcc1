import pino from 'pino';

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
  return pino({ level, base: null, redact: { paths: REDACTED, censor: '[redacted]' } }, pino.destination(2));
}
