import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import type { JsonObject } from '../../core/content.ts';
import { type Checked, schemaErrorOnce, type ToPattern } from './check-arguments.ts';

/** The thread of `schema-sandbox.ts`: sends one message when it is ready, and one per check. */

/**
 * In linear time, whatever the pattern and the text; Ajv tells patterns apart by their text. A pattern with lookarounds
 * or back references has no linear form: whoever declared it checks it.
 */
const linear: ToPattern = (pattern) => {
  const compiled = compileLinear(pattern);
  return { test: (text) => compiled?.matcher(text).find() ?? true, toString: () => pattern };
};

function compileLinear(pattern: string): RE2JS | undefined {
  try {
    return RE2JS.compile(RE2JS.translateRegExp(pattern));
  } catch {
    return undefined;
  }
}

// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port of a thread, not a window
const send = (message: unknown) => parentPort?.postMessage(message);

parentPort?.on('message', ([schema, value, what]: [JsonObject, unknown, Checked]) => {
  send({ problem: schemaErrorOnce(schema, value, what, linear) });
});
send('ready');
