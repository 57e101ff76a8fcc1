import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import type { JsonObject } from '../../core/content.ts';
import { type Checked, schemaErrorOnce, type ToPattern } from './check-arguments.ts';

/** The thread of `schema-sandbox.ts`: sends one message when it is ready, and one per check. */

/** In linear time, whatever the pattern and the text; Ajv tells patterns apart by their text. @throws for lookarounds */
const linear: ToPattern = (pattern) => {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  return { test: (text) => compiled.matcher(text).find(), toString: () => pattern };
};

/** A pattern that has no linear form is checked by the server that declared it: here it takes every text. */
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
  // Nobody else checks the answer of an agent.
  send({ problem: schemaErrorOnce(schema, value, what, what === 'output' ? linear : linearOrAny) });
});
send('ready');
