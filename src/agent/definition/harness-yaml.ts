import { type Document, isMap, isNode, isScalar, LineCounter, parseDocument, stringify } from 'yaml';
import type { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import type { AgentDefinition } from './agent.ts';
import { type HarnessFile, harnessSchema, type SubAgentInFile } from './agent-schema.ts';
import { toPlace } from './members.ts';
import type { OutputSchema } from './output-schema.ts';
import { fromWritten, toWrittenPath } from './snake-case.ts';

const MAX_PROBLEMS = 20;

/**
 * Members that VeADK's commands `veadk harness create` and `add` write (veadk-python 1.1.19). They configure services
 * of VeADK's cloud, which this runtime does not use. A file with such members is accepted, with a warning.
 */
const FOREIGN_MEMBERS = new Set([
  'harness_name',
  'runtime',
  'structured_tool_calls',
  'include_tools_every_turn',
  'harness_enhance',
  'knowledgebase',
  'long_term_memory',
  'short_term_memory',
  'auth',
  'registry',
]);

/**
 * Reads a `harness.yaml`; `path` is used in errors only. `warn` receives one message if the file has members that only
 * VeADK understands.
 * @throws {ConfigError} with one line per problem: file, line number, member, and the allowed values
 */
export function parseHarnessFile(text: string, path: string, warn: (text: string) => void = () => {}): HarnessFile {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const at = (offset: number) => `${path}:${lines.linePos(offset).line}`;
  const [broken] = document.errors;
  if (broken) throw new ConfigError(`${at(broken.pos[0])}: ${broken.message.split('\n')[0]}`);
  const written = toPlain(document, path);
  const foreign = isMap(document.contents) ? Object.keys(written).filter((name) => FOREIGN_MEMBERS.has(name)) : [];
  for (const name of foreign) delete written[name];
  const { value, unknown } = fromWritten(harnessSchema, written);
  const parsed = harnessSchema.safeParse(value);
  if (!parsed.success || unknown.length > 0) {
    const issues = parsed.error?.issues ?? [];
    const problems = [
      ...issues.map((issue) => describe(document, toWrittenPath(issue.path, written), toAllowed(issue), at)),
      ...unknown.map((member) => describe(document, member, 'there is no such member', at)),
    ];
    problems.sort((one, other) => one.offset - other.offset);
    const listed = problems.slice(0, MAX_PROBLEMS).map((problem) => problem.text);
    throw new ConfigError(listed.join('\n'));
  }
  checkNames(parsed.data, path);
  if (foreign.length > 0) warn(`${path}: these members mean nothing here and are ignored: ${foreign.join(', ')}.`);
  return parsed.data;
}

function toPlain(document: Document, path: string): Record<string, unknown> {
  try {
    return (document.toJS({ maxAliasCount: 100 }) ?? {}) as Record<string, unknown>;
  } catch {
    throw new ConfigError(`${path}: it has too many aliases.`);
  }
}

const toAllowed = ({ message }: z.core.$ZodIssue) =>
  `allowed: ${message.replace(/^Invalid input: expected (\w+), received undefined$/, 'a $1; it is missing')}`;

function describe(document: Document, path: PropertyKey[], what: string, at: (offset: number) => string) {
  const offset = findOffset(document, path);
  return { offset, text: `${at(offset)}: ${toPlace(path) || 'the file'}: ${what}.` };
}

/** Returns the position of a member in the file; for a missing member, the position of its parent. */
function findOffset(document: Document, path: PropertyKey[]): number {
  for (let length = path.length; length > 0; length -= 1) {
    const last = path[length - 1];
    const parent = length === 1 ? document.contents : document.getIn(path.slice(0, length - 1), true);
    const pair = isMap(parent) ? parent.items.find(({ key }) => isScalar(key) && key.value === last) : undefined;
    const node = pair ? pair.key : document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return 0;
}

function checkNames(file: HarnessFile, path: string): void {
  const seen = new Set(['harness_agent']);
  const visit = (agents: SubAgentInFile[] = []): void => {
    for (const { name, subAgents } of agents) {
      if (seen.has(name)) throw new ConfigError(`${path}: sub_agents: the name \`${name}\` is there twice.`);
      seen.add(name);
      visit(subAgents);
    }
  };
  visit(file.subAgents);
}

/** Returns the effective agent definition as YAML for the command `check`, without header values and credentials. */
export const toDefinitionText = (definition: AgentDefinition): string =>
  stringify(definition, hideHeaders, { lineWidth: 0 });

function hideHeaders(key: unknown, value: unknown): unknown {
  if (key === 'clientSecret' || key === 'apiKey') return '(hidden)';
  if (key === 'outputSchema') return (value as OutputSchema).schema;
  if (typeof value === 'function') return '(code)';
  if (key !== 'headers' || typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.keys(value).map((name) => [name, '(hidden)']));
}
