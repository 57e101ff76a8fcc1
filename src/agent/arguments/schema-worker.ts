import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import type { JsonObject } from '../../core/content.ts';
import { type Checked, schemaErrorOnce, type ToPattern } from './check-arguments.ts';

/** Worker thread of `schema-sandbox.ts`. It sends one message when it is ready and one per check. */

/**
 * Compiles a pattern with RE2, which matches in linear time. Ajv identifies patterns by the source in `toString`.
 * @throws for a pattern with lookaround
 */
const linear: ToPattern = (pattern) => {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  return { test: (text) => compiled.matcher(text).find(), toString: () => pattern };
};

/** A pattern that RE2 cannot compile matches every text, because the schema's MCP server checks the call too. */
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
  // In an output schema RE2 must compile all patterns, because nothing else checks an agent's final answer.
  send({ problem: schemaErrorOnce(schema, value, what, what === 'output' ? linear : linearOrAny) });
});
send('ready');
