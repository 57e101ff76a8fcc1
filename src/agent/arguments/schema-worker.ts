import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import type { JsonObject } from '../../core/content.ts';
import { type Checked, schemaErrorOnce, type ToPattern } from './check-arguments.ts';

/** Worker thread of `schema-sandbox.ts`. It sends one message when it is ready and one per check. */

/**
 * Matches in linear time (RE2). `toString` returns the pattern's source, by which Ajv identifies patterns.
 * @throws for a pattern with lookaround
 */
const linear: ToPattern = (pattern) => {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  return { test: (text) => compiled.matcher(text).find(), toString: () => pattern };
};

/** Accepts every text if RE2 cannot compile the pattern, because the server of the schema checks the call itself. */
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
  // Only this check applies to an agent's final answer, so its patterns must be ones that RE2 can compile.
  send({ problem: schemaErrorOnce(schema, value, what, what === 'output' ? linear : linearOrAny) });
});
send('ready');
