import { Client } from 'pg';
import { dialectFaults, spreadFaults, routingFaults } from './dialect.ts';

/**
 * Set-up of every test file: a statement that a distributed database would refuse fails in whatever test first sends
 * it. So the rule covers what the suites cover, and no list has to be kept. Names of tables in quotes are the service's
 * own: tests write theirs without.
 */
const PATCHED = Symbol.for('agent-runtime.dialect');
const prototype = Client.prototype as Client & { [PATCHED]?: true };

if (!prototype[PATCHED]) {
  prototype[PATCHED] = true;
  const known = new Set<string>();
  // oxlint-disable-next-line typescript/unbound-method -- called with its own `this`
  const original = prototype.query;
  prototype.query = function checked(this: Client, ...args: unknown[]) {
    const [first] = args;
    const text = typeof first === 'string' ? first : String((first as { text?: string }).text);
    if (!known.has(text)) {
      const faults = [...dialectFaults(text), ...routingFaults(text), ...spreadFaults(text)];
      if (faults.length > 0) throw new Error(`Not for a distributed database:\n${faults.join('\n')}\n${text}`);
      known.add(text);
    }
    return Reflect.apply(original, this, args) as never;
  };
}
