import { stringify } from 'yaml';
import type { AgentDefinition } from './agent.ts';

/**
 * The effective definition of an agent as YAML, for `harness:check`; values of headers are left out, since they hold
 * secrets.
 */
export const toDefinitionText = (definition: AgentDefinition): string =>
  stringify(definition, hideHeaders, { lineWidth: 0 });

function hideHeaders(key: unknown, value: unknown): unknown {
  if (key !== 'headers' || typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.keys(value).map((name) => [name, '(hidden)']));
}
