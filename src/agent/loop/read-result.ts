import { getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import { findByPath } from '../../core/json-path.ts';
import { withoutRewound } from '../../core/event.ts';
import { isRuntimeCall, READ_RESULT } from '../../core/names.ts';
import { ownTurn } from '../../platform/work/loop-turns.ts';
import type { ToolServices } from '../definition/services.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';
import { isInBranch } from './build-contents.ts';
import { guardEvents } from './guard.ts';
import { hasHandle } from './handle.ts';
import { newMarks } from './hooks.ts';
import { cutText, seesHandle, toArtifactName, toResultText } from './kept-results.ts';

/** Maximum length of a piece, and of all lines of a search, in characters. */
const MAX_PIECE = 20_000;
const MAX_LINES = 50;
/** Length of what is shown of a line, and how much of that stands before the text. */
const LINE_WIDTH = 300;
const BEFORE = 100;
const MAX_BYTES = 134_217_728;

/** Adds the tool that reads kept results to an agent whose history has one. An agent's own tool of the name stays. */
export function withReadResult(invocation: InvocationState, turn: AgentTurn): AgentTurn {
  const { agent } = turn;
  if (agent.isRemote || !seesHandle(invocation, turn) || agent.tools.some(({ name }) => name === READ_RESULT))
    return turn;
  return { ...turn, agent: { ...agent, tools: [...agent.tools, readResult(invocation, turn)] } };
}

interface Result {
  text: string;
  kind: string;
}

const readResult = (invocation: InvocationState, turn: AgentTurn): Tool => ({
  name: READ_RESULT,
  description:
    'Reads a result that was too large to be shown whole, by its handle. Without more it gives the first ' +
    `${MAX_PIECE} characters.`,
  parameters: toParameters(
    {
      handle: { type: 'string', minLength: 1, maxLength: 1_024, description: 'As the result names it.' },
      offset: { type: 'integer', minimum: 0, description: 'Where to begin, in characters. Default: 0.' },
      length: { type: 'integer', minimum: 1, maximum: MAX_PIECE, description: 'How many characters to give.' },
      search: {
        type: 'string',
        minLength: 1,
        maxLength: 200,
        description: `Gives the lines that contain this text, in any case of letters, at most ${MAX_LINES}.`,
      },
      path: {
        type: 'string',
        minLength: 1,
        maxLength: 500,
        description: 'Reads only the value at this path of JSON: `items[0].name`, `["a b"]`, a slice `items[0:10]`.',
      },
    },
    'handle',
  ),
  needsConfirmation: false,
  effect: 'none',
  // A piece is never kept as a result itself.
  limits: { maxResultCharacters: Infinity },
  async run(args, { services, session }) {
    const { handle, offset = 0, length = MAX_PIECE, search, path } = args as Record<string, never>;
    const whole = await load(invocation, turn, services, String(handle));
    // A model may search many times at once, and each search goes through millions of characters.
    await ownTurn(session.userId);
    const { text, kind } = path === undefined ? whole : select(whole, path);
    const found = search === undefined ? readPiece(text, offset, length) : searchLines(text, search, offset);
    return { characters: text.length, kind, ...found };
  },
});

/** The result that was read last, by the services of its invocation, because a model reads many pieces, also at once. */
const lastRead = new WeakMap<ToolServices, { handle: string; result: Promise<Result> }>();

/** @throws {Error} if the session has no such result, or no longer */
async function load(
  invocation: InvocationState,
  turn: AgentTurn,
  services: ToolServices,
  handle: string,
): Promise<Result> {
  const stored = withoutRewound(invocation.events).findLast(
    (each) => isInBranch(each, turn.branch) && getFunctionResponses(each.content).some(({ id }) => id === handle),
  );
  // Guardrails change what a client answered only in the prompt, and in pieces they would not find it.
  const [event] = stored ? await guardEvents(invocation, turn, [stored], newMarks()) : [];
  const answer = getFunctionResponses(event?.content).find(({ id }) => id === handle);
  // What a person answered to the runtime, such as a credential, is never shown to a model.
  if (answer?.response && !isRuntimeCall(answer.name) && !hasHandle(answer)) return toResultText(answer.response);
  const last = lastRead.get(services);
  const result = last?.handle === handle ? last.result : loadKept(services, handle);
  lastRead.set(services, { handle, result });
  return result.catch((error: unknown) => {
    lastRead.delete(services);
    throw error;
  });
}

async function loadKept(services: ToolServices, handle: string): Promise<Result> {
  const part = await services.loadArtifact(toArtifactName(handle), undefined, MAX_BYTES);
  const result = part && toResult(part);
  // A rewind has made it empty, as all that was saved in the rewound invocations.
  if (!result?.text) throw new Error('There is no result with this handle in this session.');
  return result;
}

function toResult({ text, inlineData }: Part): Result {
  if (typeof text === 'string') return { text, kind: 'text' };
  return { text: Buffer.from(inlineData?.data ?? '', 'base64').toString(), kind: 'json' };
}

/** @throws {Error} with words for the model */
function select({ text, kind }: Result, path: string): Result {
  // A server often gives JSON as a text.
  if (kind !== 'json' && !/^\s*[[{]/.test(text.slice(0, 1_000)))
    throw new Error('This result is not JSON, so it has no paths.');
  const json = findByPath(text, path);
  if (!json.startsWith('"')) return { text: json, kind: 'json' };
  try {
    return { text: JSON.parse(json) as string, kind: 'text' };
  } catch {
    throw new Error('This result is not JSON, so it has no paths.');
  }
}

function readPiece(text: string, offset: number, length: number): JsonObject {
  const piece = cutText(text, offset, offset + length);
  const next = offset + piece.length;
  return { offset, text: piece, ...(next < text.length && { nextOffset: next }) };
}

/** Lower case of the same length: of all letters only `İ` becomes two. */
const toLower = (text: string) => text.replaceAll('\u0130', 'i').toLowerCase();

/**
 * Finds the lines with a text, from `offset` on. A line that is longer than what is shown of it is searched on behind
 * that. Linear, whatever the text: no pattern of the model is used as a regular expression.
 */
function searchLines(text: string, search: string, offset: number): JsonObject {
  const [low, wanted] = [toLower(text), toLower(search)];
  const matches: { line: number; offset: number; text: string }[] = [];
  let [line, lineStart, lineEnd] = [1, 0, text.indexOf('\n')];
  let at = low.indexOf(wanted, offset);
  while (at >= 0 && matches.length < MAX_LINES) {
    for (; lineEnd >= 0 && lineEnd < at; lineEnd = text.indexOf('\n', lineStart)) {
      line += 1;
      lineStart = lineEnd + 1;
    }
    const start = Math.max(lineStart, at - BEFORE);
    const shown = cutText(text, start, start + LINE_WIDTH);
    const end = shown.indexOf('\n', at - start);
    matches.push({ line, offset: start, text: end < 0 ? shown : shown.slice(0, end) });
    at = low.indexOf(wanted, end < 0 ? Math.max(start + shown.length, at + 1) : start + end);
  }
  return { matches, ...(at >= 0 && { nextOffset: at }) };
}
