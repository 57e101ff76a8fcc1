import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import type { JsonObject } from '../../core/content.ts';
import { type Checked, schemaErrorOnce, type ToPattern } from './check-arguments.ts';

/** Worker thread of `schema-sandbox.ts`. It sends one message when it is ready and one per check. */

/**
 * Compiles a pattern that matches in linear time (RE2). `toString` returns the source, because Ajv identifies patterns
 * by it. @throws for lookarounds
 */
const linear: ToPattern = (pattern) => {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  return { test: (text) => compiled.matcher(text).find(), toString: () => pattern };
};

/** A pattern without a linear form accepts every text here; the server that declared it checks the call. */
const linearOrAny: ToPattern = (pattern) => {
  try {
    return linear(pattern);
  } catch {
    return { test: () => true, toString: () => pattern };
  }
};

// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port of a thread, not a window
const send = (message: unknown) => parentPort?.postMessage(message);

parentPort?.on('message', ([schema, value, what]: [JsonObject, unknown, Checked]) => {
  // An agent's output is checked only here, so its pattern must be linear.
  send({ problem: schemaErrorOnce(schema, value, what, what === 'output' ? linear : linearOrAny) });
});
send('ready');
