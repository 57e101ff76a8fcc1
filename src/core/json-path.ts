/*
 * Reads a value out of JSON text by a path, without parsing the text: it may have millions of characters, of which the
 * path wants few. Each step passes over what stands before its value, so that a path of any steps reads each character
 * at most twice. Text that is no JSON gives anything, or an error.
 */

const MAX_PATH = 500;
const MAX_STEPS = 32;

/** A member's name, an element's index, or a slice of elements without its end. */
type Step = string | number | { from: number; to: number };

const STEP = /\.?([\p{L}\p{N}_$-]+)|\.?\[(?:(\d{1,9})|(\d{0,9}):(\d{0,9})|("(?:[^"\\]|\\.)*")|'([^'\\]*)')\]/uy;

/** @throws {Error} if the path is too long or cannot be read, with words for a model */
function parsePath(path: string): Step[] {
  if (path.length > MAX_PATH) throw new Error(`The path is longer than ${MAX_PATH} characters.`);
  const steps: Step[] = [];
  let at = /^\$(?=[.[]|$)/.test(path) ? 1 : 0;
  while (at < path.length) {
    STEP.lastIndex = at;
    const match = STEP.exec(path);
    if (!match) throw new Error(`The path cannot be read at character ${at + 1}. Write it as \`items[0].name\`.`);
    const [whole, name, index, from, to, quoted, single] = match;
    if (from !== undefined) steps.push({ from: Number(from), to: to ? Number(to) : Infinity });
    else steps.push(index === undefined ? (name ?? single ?? readName(quoted ?? '')) : Number(index));
    if (steps.length > MAX_STEPS) throw new Error(`The path has more than ${MAX_STEPS} steps.`);
    at += whole.length;
  }
  const slice = steps.findIndex((step) => typeof step === 'object');
  if (slice >= 0 && slice < steps.length - 1) throw new Error('Only the last step of a path may be a slice.');
  return steps;
}

function readName(quoted: string): string {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    throw new Error(`The path has a name that is no JSON string: ${quoted}`);
  }
}

/**
 * The JSON text of the value at a path: `a.b`, `["a b"]`, `[0]`, and as the last step a slice `[2:5]`.
 * @throws {Error} for a path that cannot be read or leads nowhere, with words for a model
 */
export function findByPath(json: string, path: string): string {
  let start = skipSpace(json, 0);
  for (const step of parsePath(path)) {
    if (typeof step === 'object') return sliceOf(json, start, step, path);
    const next = typeof step === 'string' ? findMember(json, start, step) : findElement(json, start, step);
    if (next === undefined) throw new Error(`There is nothing at \`${path}\`.`);
    start = next;
  }
  return json.slice(start, endOfValue(json, start));
}

/** Index of a member's value; also of an element whose index was written as a name (`items.0`). */
function findMember(json: string, start: number, name: string): number | undefined {
  if (json[start] === '[' && /^\d{1,9}$/.test(name)) return findElement(json, start, Number(name));
  if (json[start] !== '{') return undefined;
  for (let at = skipSpace(json, start + 1); json[at] === '"'; at = skipSpace(json, at + 1)) {
    const end = endOfString(json, at);
    const value = skipSpace(json, skipSpace(json, end) + 1);
    if (isKey(json.slice(at, end), name)) return value;
    at = skipSpace(json, endOfValue(json, value));
  }
  return undefined;
}

function findElement(json: string, start: number, index: number): number | undefined {
  let at = skipSpace(json, start + 1);
  if (json[start] !== '[' || json[at] === ']') return undefined;
  for (let place = 0; place < index; place += 1) {
    at = skipSpace(json, endOfValue(json, at));
    if (json[at] !== ',') return undefined;
    at = skipSpace(json, at + 1);
  }
  return at;
}

function sliceOf(json: string, start: number, { from, to }: { from: number; to: number }, path: string): string {
  if (json[start] !== '[') throw new Error(`There is no array at \`${path}\`.`);
  const first = to > from ? findElement(json, start, from) : undefined;
  if (first === undefined) return '[]';
  let end = endOfValue(json, first);
  for (let place = from + 1; place < to; place += 1) {
    const comma = skipSpace(json, end);
    if (json[comma] !== ',') break;
    end = endOfValue(json, skipSpace(json, comma + 1));
  }
  return `[${json.slice(first, end)}]`;
}

const [QUOTE, BACKSLASH] = [34, 92];
const SCALAR = /[^,\]}\s]*/y;
const SPACE = /[ \t\r\n]*/y;

function skipSpace(json: string, at: number): number {
  SPACE.lastIndex = at;
  return at + (SPACE.exec(json)?.[0].length ?? 0);
}

/** True if the JSON string is the name. Each character may be an escape of six. */
const isKey = (text: string, name: string): boolean => {
  if (!text.includes('\\')) return text === `"${name}"`;
  if (text.length > 6 * name.length + 2) return false;
  try {
    return JSON.parse(text) === name;
  } catch {
    return false;
  }
};

/** Index after the string that begins at `start`. */
function endOfString(json: string, start: number): number {
  for (let at = json.indexOf('"', start + 1); at >= 0; at = json.indexOf('"', at + 1)) {
    let slashes = 0;
    while (json.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return at + 1;
  }
  return json.length;
}

/** Index after the value that begins at `start`. */
function endOfValue(json: string, start: number): number {
  const first = json[start];
  if (first === '"') return endOfString(json, start);
  if (first !== '{' && first !== '[') {
    SCALAR.lastIndex = start;
    return start + (SCALAR.exec(json)?.[0].length ?? 0);
  }
  let depth = 0;
  for (let at = start; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (code === QUOTE) at = endOfString(json, at) - 1;
    // `[` and `{`, `]` and `}` differ in one bit.
    else if ((code | 32) === 123) depth += 1;
    else if ((code | 32) === 125) {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return json.length;
}
