import { keyAliases } from '../../../platform/http/validation/key-aliases.ts';
import { rubricSchema, rubricType } from '../metrics/criteria.ts';
import { InvalidError } from '../../../core/errors.ts';
import { z } from 'zod';
import type { EvalCaseBody, EvalSetDocument, FileDefaults } from './eval-set.ts';
import { streamList } from './bounds.ts';
import type { JsonStream } from '../../../platform/json-stream.ts';
import { toStoredCase } from './intermediate-data.ts';
import {
  contentSchema,
  jsonObject,
  partSchema,
  functionCallSchema,
  functionResponseSchema,
} from '../../../core/content.ts';
import { getChildren, unwrap } from '../../../core/zod-graph.ts';
import { isExactInteger, parseExactJson } from '../../../core/exact-json.ts';

/**
 * The schema of an evaluation case that every version of ADK can read from a file: events are `{author, content}`, and
 * records have only the properties below. Files of ADK 2.13.0 have further properties, which ADK 2.2.0 refuses.
 */
const rubrics = z.array(rubricSchema.extend({ type: rubricType.nullish() })).nullish();

const intermediateData = z.looseObject({
  invocationEvents: z.array(z.looseObject({ author: z.string(), content: contentSchema })).nullish(),
  toolUses: z.array(functionCallSchema).nullish(),
  toolResponses: z.array(functionResponseSchema).nullish(),
  intermediateResponses: z.array(z.tuple([z.string(), z.array(partSchema)])).nullish(),
});

const fileTurn = z.looseObject({
  invocationId: z.string().nullish(),
  userContent: contentSchema,
  finalResponse: contentSchema.nullish(),
  intermediateData: intermediateData.nullish(),
  creationTimestamp: z.number().nullish(),
  rubrics,
  appDetails: z
    .looseObject({
      agentDetails: z
        .record(
          z.string(),
          z.looseObject({
            name: z.string(),
            instructions: z.string().nullish(),
            toolDeclarations: z.array(jsonObject).nullish(),
          }),
        )
        .nullish(),
    })
    .nullish(),
});

/** A case in a file, in camelCase. Unknown properties are kept, because {@link passOver} reports them. */
const fileCaseSchema = z.looseObject({
  evalId: z.string(),
  conversation: z.array(fileTurn).nullish(),
  conversationScenario: z
    .looseObject({
      startingPrompt: z.string(),
      conversationPlan: z.string(),
      userPersona: z.union([z.string(), jsonObject]).nullish(),
    })
    .nullish(),
  sessionInput: z.looseObject({ appName: z.string(), userId: z.string(), state: jsonObject.nullish() }).nullish(),
  creationTimestamp: z.number().nullish(),
  rubrics,
  finalSessionState: jsonObject.nullish(),
});

interface Pass {
  rename: (name: string) => string;
  /** Returns true for schemas of records whose unknown properties are kept. */
  isOpen: (schema: z.core.$ZodType) => boolean;
  /** True for a default value, which is dropped without a report, because every reader adds it again. */
  isDefault: (name: string, value: unknown) => boolean;
  droppedPaths: string[];
}

/** Removes nulls and properties that the schema does not define. Free-form objects stay unchanged. */
function passOver(schema: z.core.$ZodType, value: unknown, path: string, pass: Pass): unknown {
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return value;
  const plain = unwrap(schema);
  const { members, elements } = getChildren(plain);
  const below = (index: number) => elements[elements.length > 1 ? index : 0];
  if (Array.isArray(value)) {
    return value.map((each, index) => {
      const element = below(index);
      return element ? passOver(element, each, `${path}[${index}]`, pass) : each;
    });
  }
  const entries = Object.entries(value);
  if (Object.keys(members).length === 0) {
    const element = below(0);
    if (!element) return value;
    return Object.fromEntries(entries.map(([name, each]) => [name, passOver(element, each, `${path}.${name}`, pass)]));
  }
  // Properties are in the order of the schema, as in ADK's files, unknown ones last.
  const order = Object.keys(members);
  const place = (name: string) => (order.includes(name) ? order.indexOf(name) : order.length);
  const keptEntries = entries
    .toSorted(([one], [other]) => place(one) - place(other))
    .flatMap(([name, member]): [string, unknown][] => {
      const memberSchema = Object.hasOwn(members, name) ? members[name] : undefined;
      const at = `${path}.${pass.rename(name)}`;
      if (!memberSchema) {
        if (pass.isOpen(plain)) return [[name, member]];
        pass.droppedPaths.push(at);
        return [];
      }
      if (member === null || pass.isDefault(name, member)) return [];
      return [[pass.rename(name), passOver(memberSchema, member, at, pass)]];
    });
  return Object.fromEntries(keptEntries);
}

const SNAKE = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const spelling = keyAliases(fileCaseSchema);

/** Properties to which every reader adds a default, with the default as JSON. */
const DEFAULTS: Record<string, string> = {
  invocationId: '""',
  creationTimestamp: '0',
  state: '{}',
  finalSessionState: '{}',
  invocationEvents: '[]',
  toolUses: '[]',
  toolResponses: '[]',
  intermediateResponses: '[]',
  instructions: '""',
  toolDeclarations: '[]',
};
const isDefault = (name: string, value: unknown) =>
  Object.hasOwn(DEFAULTS, name) && DEFAULTS[name] === JSON.stringify(value);

/** Names of properties with base64 data. They are written in the URL-safe alphabet, as ADK does. */
const BYTES = new Set(['data', 'thought_signature']);
const toUrlSafe = (base64: string) => base64.replaceAll('+', '-').replaceAll('/', '_');

/** Properties of a set that only this service defines. */
const MODES = ['model_execution_mode', 'tool_execution_mode'] as const;

const MAX_DROPPED = 1_000;

/**
 * Writes a file `.evalset.json` that every version of ADK can read: names in snake_case, an indent of two spaces, no
 * nulls and no default values. Properties that some version would refuse are omitted; the file lists their paths in
 * `dropped`, which ADK ignores.
 * @param cases - JSON of the cases, page by page
 */
export async function writeEvalSet(
  set: Omit<EvalSetDocument, 'eval_cases'>,
  cases: AsyncIterable<string[]> | Iterable<string[]>,
): Promise<JsonStream> {
  const { eval_set_id, name, description, creation_timestamp: time, ...others } = set;
  const dropped: string[] = MODES.filter((mode) => (others[mode] ?? 'live') !== 'live');
  const head = toText({ eval_set_id, name: name ?? undefined, description: description ?? undefined }).slice(0, -2);
  let place = 0;
  const pages = async function* () {
    for await (const page of cases) {
      yield page.map((text) => `\n    ${writeCase(parseExactJson(text) as EvalCaseBody, place++, dropped)}`);
      dropped.splice(MAX_DROPPED);
    }
  };
  const tail = () => {
    const last = toText({ creation_timestamp: time || undefined, dropped: dropped.length > 0 ? dropped : undefined });
    return `${place > 0 ? '\n  ' : ''}]${last === '{}' ? '\n}' : `,${last.slice(1)}`}`;
  };
  return streamList(pages(), `${head},\n  "eval_cases": [`, tail);
}

const toText = (value: object) => JSON.stringify(value, null, 2);

/** Serializes a case for a file, and adds the paths of omitted properties to `dropped`. */
function writeCase(evalCase: EvalCaseBody, place: number, dropped: string[]): string {
  const path = `eval_cases[${place}]`;
  const pass = { rename: SNAKE, isOpen: () => false, isDefault, droppedPaths: dropped };
  const document = passOver(fileCaseSchema, toStoredCase(withoutSilentEvents(evalCase, path, dropped)), path, pass);
  return toText(withUrlSafeBytes(document) as object).replaceAll('\n', '\n    ');
}

/** Makes base64 URL-safe, but leaves arguments and results of tools, even with a property named `data`. */
function withUrlSafeBytes(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return value;
  if (Array.isArray(value)) return value.map(withUrlSafeBytes);
  const entries = Object.entries(value).map(([name, member]): [string, unknown] => {
    if (FREE_FORM.has(name)) return [name, member];
    return [name, BYTES.has(name) && typeof member === 'string' ? toUrlSafe(member) : withUrlSafeBytes(member)];
  });
  return Object.fromEntries(entries);
}
const FREE_FORM = new Set(['args', 'response', 'state', 'final_session_state', 'part_metadata', 'tool_declarations']);

/**
 * Removes events without content, which ADK 2.2.0 refuses (ADK 2.13 writes them for final answers), and properties of
 * ADK 1.x next to events, because every version refuses both together. Adds the removed paths to `dropped`.
 */
function withoutSilentEvents(evalCase: EvalCaseBody, path: string, dropped: string[]): EvalCaseBody {
  const conversation = evalCase.conversation?.map((turn, place) => {
    const events = turn.intermediateData?.invocationEvents;
    if (!events) return turn;
    const at = `${path}.conversation[${place}].intermediate_data`;
    const eventsWithContent = events.filter((event, index) => {
      if (!event.content) dropped.push(`${at}.invocation_events[${index}]`);
      return event.content;
    });
    for (const name of ['toolUses', 'toolResponses', 'intermediateResponses'] as const) {
      if (turn.intermediateData?.[name]) dropped.push(`${at}.${SNAKE(name)}`);
    }
    return { ...turn, intermediateData: { ...turn.intermediateData, invocationEvents: eventsWithContent } };
  });
  return conversation ? { ...evalCase, conversation } : evalCase;
}

/** Schemas of the records whose unknown properties ADK keeps: a case, and the session input of a case. */
const OPEN = new Set<unknown>([fileCaseSchema, fileCaseSchema.shape.sessionInput.unwrap().unwrap()]);

/**
 * Reads the JSON of a file of any ADK version, with names in snake_case or camelCase. `dropped` lists the paths of
 * properties that are not kept.
 * @throws {InvalidError} if the JSON is not an evaluation set; the message names the error.
 */
export function readEvalSet(json: unknown, defaults: FileDefaults): { set: EvalSetDocument; dropped: string[] } {
  // In files of early ADK versions a set is a list of sessions, without an id.
  if (Array.isArray(json)) return fromOldSessions(json, defaults);
  const { eval_set_id, eval_cases, name, description, creation_timestamp, ...others } = toObject(json);
  if (typeof eval_set_id !== 'string') throw new InvalidError('The file is no eval set: `eval_set_id` is missing.');
  if (!Array.isArray(eval_cases)) throw new InvalidError('The file is no eval set: `eval_cases` is missing.');
  const { dropped: _said, ...unknown } = others;
  const dropped = Object.keys(unknown);
  const set = {
    eval_set_id,
    ...(typeof name === 'string' ? { name } : {}),
    ...(typeof description === 'string' ? { description } : {}),
    eval_cases: eval_cases.map((evalCase, place) => readCase(evalCase, `eval_cases[${place}]`, dropped)),
    creation_timestamp: typeof creation_timestamp === 'number' ? creation_timestamp : 0,
  };
  return { set, dropped };
}

const toObject = (json: unknown): Record<string, unknown> =>
  typeof json === 'object' && json !== null ? { ...json } : {};

function readCase(json: unknown, path: string, dropped: string[]): EvalCaseBody {
  const respelled = spelling.toSchema(json) as EvalCaseBody;
  const isCase = typeof respelled === 'object' && respelled !== null && Array.isArray(respelled.conversation ?? []);
  const cleaned = isCase ? withoutSilentEvents(respelled, path, dropped) : respelled;
  const result = fileCaseSchema.safeParse(cleaned);
  if (!result.success) throw new InvalidError(`${path} is no eval case: ${toReason(result.error)}`);
  const { conversation, conversationScenario } = result.data;
  if ((conversation == null) === (conversationScenario == null)) {
    throw new InvalidError(`${path} needs exactly one of conversation and conversation_scenario.`);
  }
  const isOpen = (schema: z.core.$ZodType) => OPEN.has(schema);
  const pass = { rename: (member: string) => member, isOpen, isDefault: () => false, droppedPaths: dropped };
  return withDefaults(toStoredCase(passOver(fileCaseSchema, result.data, path, pass) as EvalCaseBody));
}

const toReason = (error: z.ZodError) =>
  error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ');

/** Adds the properties that files omit but responses of this service contain. */
function withDefaults(evalCase: EvalCaseBody): EvalCaseBody {
  const conversation = evalCase.conversation?.map((turn) => ({
    ...turn,
    ...(turn.intermediateData ? { intermediateData: toEvents(turn.intermediateData) } : {}),
    creationTimestamp: turn.creationTimestamp ?? 0,
  }));
  const { sessionInput } = evalCase;
  return {
    ...evalCase,
    ...(conversation ? { conversation } : {}),
    ...(sessionInput ? { sessionInput: { ...sessionInput, state: sessionInput.state ?? {} } } : {}),
    creationTimestamp: evalCase.creationTimestamp ?? 0,
    finalSessionState: evalCase.finalSessionState ?? {},
  };
}

/** Converts a turn's intermediate data to events. Data without events are those of ADK 1.x, even if they are empty. */
const toEvents = (data: NonNullable<NonNullable<EvalCaseBody['conversation']>[number]['intermediateData']>) =>
  data.invocationEvents ? data : { toolUses: [], toolResponses: [], intermediateResponses: [], ...data };

const oldTurn = z.looseObject({
  query: z.string(),
  reference: z.string().nullish(),
  expected_tool_use: z.array(z.looseObject({ tool_name: z.string(), tool_input: jsonObject.nullish() })).nullish(),
  expected_intermediate_agent_responses: z.array(z.looseObject({ author: z.string(), text: z.string() })).nullish(),
});

const oldSessions = z.array(
  z.looseObject({
    name: z.string(),
    data: z.array(oldTurn),
    initial_session: z
      .looseObject({ state: jsonObject.nullish(), app_name: z.string().nullish(), user_id: z.string().nullish() })
      .nullish(),
  }),
);

/**
 * Converts a file's sessions, with new ids and the current time. @throws {InvalidError} if it is no list of sessions
 */
function fromOldSessions(
  json: unknown,
  { evalSetId, now, newId }: FileDefaults,
): { set: EvalSetDocument; dropped: string[] } {
  const result = oldSessions.safeParse(json);
  if (!result.success) {
    const reasons = result.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
    throw new InvalidError(`The file is no list of sessions of ADK 1.x: ${reasons.join('; ')}`);
  }
  const dropped = result.data.flatMap(({ data }, session) =>
    data.flatMap(({ expected_tool_use: uses }, turn) =>
      (uses ?? []).flatMap((use, place) =>
        'mock_tool_output' in use ? [`[${session}].data[${turn}].expected_tool_use[${place}].mock_tool_output`] : [],
      ),
    ),
  );
  const cases = result.data.map(({ name, data, initial_session: start }) => ({
    evalId: name,
    conversation: data.map((turn) => toTurn(turn, now, newId())),
    ...(start && Object.keys(start).length > 0
      ? { sessionInput: { appName: start.app_name ?? '', userId: start.user_id ?? '', state: start.state ?? {} } }
      : {}),
    creationTimestamp: now,
    finalSessionState: {},
  }));
  return {
    set: { eval_set_id: evalSetId, name: evalSetId, eval_cases: cases, creation_timestamp: now },
    dropped,
  };
}

const toTurn = (turn: z.infer<typeof oldTurn>, now: number, invocationId: string) => ({
  invocationId,
  userContent: { parts: [{ text: turn.query }], role: 'user' },
  finalResponse: { parts: [{ text: turn.reference ?? '' }], role: 'model' },
  intermediateData: {
    toolUses: (turn.expected_tool_use ?? []).map(({ tool_name: name, tool_input: args }) => ({
      name,
      args: args ?? {},
    })),
    toolResponses: [],
    intermediateResponses: (turn.expected_intermediate_agent_responses ?? []).map(({ author, text }) => [
      author,
      [{ text }],
    ]),
  },
  creationTimestamp: now,
});
