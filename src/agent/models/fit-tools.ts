import { type Content, type FunctionCall, getParts, type JsonObject } from '../../core/content.ts';
import type { ModelRequest, ToolDeclaration } from '../definition/model.ts';
import { decodeArguments, encodeArguments, type FittedSchema, fitSchema, toFreeName } from './fit-schema.ts';
import type { CallOptions, ProviderFacts } from '../providers/provider.ts';

type ProviderTool = NonNullable<CallOptions['tools']>[number];

export interface FittedTools {
  tools: ProviderTool[];
  /** Text about the tools to add to the instruction; may be empty. */
  notes: string;
  /** Returns the name under which a tool is sent to the provider, even if the agent no longer has the tool. */
  toName: (name: string) => string;
  /** Converts arguments of a tool call to the provider's encoding. */
  toArguments(name: string, args: JsonObject): JsonObject;
  readCalls(content: Content): Content;
  readCall<Call extends FunctionCall>(call: Call): Call;
}

export interface OmittedTool {
  tool: string;
  reason: string;
}

/** Maximum length of the text about one tool in the instruction, in characters. */
const MAX_NOTE = 8_000;

/** Converts the tools for a provider. `onLeftOut` is called with each tool that the provider would reject. */
export function fitTools(
  { tools, outputSchema }: Pick<ModelRequest, 'tools' | 'outputSchema'>,
  facts: ProviderFacts,
  onLeftOut?: (omitted: OmittedTool) => void,
): FittedTools {
  const names = new Map<string, string>();
  const owners = new Map<string, string>();
  const schemas = new Map<string, FittedSchema>();
  const notes: string[] = [];
  const taken = new Set([...UNSAFE, ...(outputSchema ? facts.formTools : [])]);
  // Some AI SDK packages add a tool for structured output, which counts towards the provider's maximum.
  const maximum = facts.tools - (outputSchema ? 1 : 0);
  const candidates = tools.slice(0, maximum);
  for (const { name } of candidates) if (facts.toolName.test(name) && !taken.has(name)) names.set(name, name);
  for (const name of names.values()) taken.add(name);
  const leaveOut = (tool: string, reason: string) => {
    onLeftOut?.({ tool, reason });
  };
  const fitted = candidates.flatMap((tool): ProviderTool[] => {
    if (schemas.has(tool.name)) {
      leaveOut(tool.name, 'another tool has its name');
      return [];
    }
    const schema = fitSchema(tool.parameters, facts);
    if (typeof schema === 'string') {
      leaveOut(tool.name, schema);
      return [];
    }
    schemas.set(tool.name, schema);
    const name = names.get(tool.name) ?? toFreeName(tool.name, taken, 60);
    taken.add(name);
    names.set(tool.name, name);
    owners.set(name, tool.name);
    const { description, rest } = describe(tool, schema, facts);
    if (rest !== '') notes.push(`More of the tool \`${name}\`: ${rest}`);
    // The schema is `undefined` for a tool without arguments if the provider accepts no empty schema.
    return [{ type: 'function', name, description, inputSchema: schema.schema as JsonObject }];
  });
  const more = tools.slice(maximum).map(({ name }) => name);
  for (const name of more) leaveOut(name, `the provider takes ${maximum} tools`);
  if (more.length > 0)
    notes.push(
      `These tools are too many to be used here: ${more.join(', ').slice(0, MAX_NOTE)}. Say so where one is needed.`,
    );
  const isSame =
    [...names].every(([name, sentName]) => name === sentName) && [...schemas.values()].every(({ code }) => !code);
  const readCall = <Call extends FunctionCall>(call: Call): Call => {
    if (isSame) return call;
    const name = owners.get(call.name ?? '') ?? call.name ?? '';
    return { ...call, name, args: decodeArguments(call.args ?? {}, schemas.get(name)?.code) };
  };
  return {
    tools: fitted,
    notes: notes.join('\n\n'),
    toName: (name) =>
      names.get(name) ?? (facts.toolName.test(name) && !UNSAFE.has(name) ? name : toFreeName(name, UNSAFE, 60)),
    toArguments: (name, args) => encodeArguments(args, schemas.get(name)?.code),
    readCalls: (content) => (isSame ? content : readCalls(content, readCall)),
    readCall,
  };
}

/** Tool names that are replaced, because every object has such members and AI SDK packages look tools up in objects. */
const UNSAFE: ReadonlySet<string> = new Set(Object.getOwnPropertyNames(Object.prototype));

/** Adds to a description the `alternatives`, and cuts it at the provider's maximum; `rest` is the text cut off. */
function describe({ description }: ToolDeclaration, { alternatives }: FittedSchema, facts: ProviderFacts) {
  const sets = [
    ...new Set(alternatives.filter((set) => set.length > 0).map((set) => set.map((name) => `\`${name}\``).join(', '))),
  ];
  const choice = sets.length > 1 ? `Give one of these sets of arguments: ${sets.join('; or ')}.`.slice(0, 500) : '';
  const whole = [description, choice].filter(Boolean).join(' ');
  if (whole.length <= facts.description) return { description: whole, rest: '' };
  const end = facts.description - choice.length - 20;
  const short = [`${description.slice(0, end).toWellFormed()} …`, choice].filter(Boolean).join(' ');
  return { description: short, rest: `… ${description.slice(end, end + MAX_NOTE).toWellFormed()}` };
}

function readCalls(content: Content, readCall: (call: FunctionCall) => FunctionCall): Content {
  const parts = getParts(content).map((part) =>
    part.functionCall ? { ...part, functionCall: readCall(part.functionCall) } : part,
  );
  return { ...content, parts };
}
