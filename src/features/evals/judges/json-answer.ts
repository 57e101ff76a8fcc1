type JsonObject = Record<string, unknown>;

/**
 * The JSON object of a judge's answer: the whole text, what stands in a fence, or what stands between the outermost
 * braces, since models write around it whatever the prompt says. `undefined` where there is none.
 */
export function readJsonAnswer(answer: string): JsonObject | undefined {
  const fenced = fencedIn(answer);
  const braced = answer.slice(answer.indexOf('{'), answer.lastIndexOf('}') + 1);
  for (const candidate of [answer, fenced, braced]) {
    const value = parsed(candidate);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject;
  }
  return undefined;
}

/** What stands in the first fence. No pattern: one that looks for its end takes quadratic time where there is none. */
function fencedIn(answer: string): string | undefined {
  const start = answer.indexOf('```');
  const end = answer.indexOf('```', start + 3);
  return start < 0 || end < 0 ? undefined : answer.slice(start + 3, end).replace(/^json/, '');
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A member of a judge's answer as a word in lower case; `undefined` for other than text and booleans. */
export function wordOf(value: unknown): string | undefined {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'string' ? value.trim().toLowerCase() : undefined;
}

/** A member of a judge's answer that is a list of objects; `undefined` for anything else. */
export function objectsOf(value: unknown): JsonObject[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.filter((each): each is JsonObject => typeof each === 'object' && each !== null);
}
