import type { FunctionCall, JsonObject } from '../../core/content.ts';
import type { ToolDeclaration } from '../definition/model.ts';

/**
 * The tool calls that a prompt requests, in its order: a tool that it names as a whole word, with the JSON object
 * behind the name as arguments, else `{}`. For the calculator any arithmetic in the prompt does as well. Without ids.
 */
export function toolCallsFor(prompt: string, tools: ToolDeclaration[]): FunctionCall[] {
  const named = tools
    .map(({ name }) => ({ name, place: prompt.search(wholeWord(name)) }))
    .filter(({ place }) => place >= 0)
    .sort((one, other) => one.place - other.place);
  let end = 0;
  return named.flatMap(({ name, place }, index) => {
    // A name inside the arguments of another call requests nothing.
    if (place < end) return [];
    const object = firstObject(prompt, place);
    const isOwn = object && object.start < (named[index + 1]?.place ?? prompt.length);
    if (isOwn) end = object.end;
    return [{ name, args: isOwn ? object.value : defaultArguments(name, prompt) }];
  });
}

const wholeWord = (name: string) =>
  new RegExp(`(?<![A-Za-z0-9_])${name.replaceAll(/[^A-Za-z0-9_]/g, String.raw`\$&`)}(?![A-Za-z0-9_])`, 'i');

/** The first JSON object of a text from a place on, and where it starts and ends. */
function firstObject(text: string, from: number): { value: JsonObject; start: number; end: number } | undefined {
  const start = text.indexOf('{', from);
  let end = start;
  // Ends are tried from the left, at most 20 of them: a prompt full of braces must not cost quadratic time.
  for (let tries = 0; start >= 0 && tries < 20; tries += 1) {
    end = text.indexOf('}', end) + 1;
    if (end === 0) return undefined;
    try {
      return { value: JSON.parse(text.slice(start, end)) as JsonObject, start, end };
    } catch {
      // Not the end of the object yet.
    }
  }
  return undefined;
}

function defaultArguments(name: string, prompt: string): JsonObject {
  if (name !== 'calculator') return {};
  const runs = prompt.match(/(?:\b(?:sqrt|sin|cos|tan|log|exp|abs|round|pi)\b|[\d.+\-*/^()%×÷,\s])+/g) ?? [];
  const expressions = runs
    .map((run) => run.replaceAll('×', '*').replaceAll('÷', '/').trim())
    .filter((run) => /\d/.test(run));
  const [longest = ''] = expressions.sort((one, other) => other.length - one.length);
  return { expression: withoutEnd(longest) };
}

/** Without dots, commas and blanks at its end. A pattern for that takes quadratic time: 18 s for 100,000 dots. */
function withoutEnd(text: string): string {
  let end = text.length;
  while (end > 0 && /[.,\s]/.test(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}
