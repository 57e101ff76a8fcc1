import type { FunctionCall, JsonObject } from '../../core/content.ts';
import type { ToolDeclaration } from '../definition/model.ts';

/** Words that ask for a tool without its name. */
const HINTS: Record<string, RegExp> = {
  calculator: /\d\s*(?:[*+/^×÷]|\s-\s?)\s*\(*-?\d|\bsqrt\(/,
  current_time: /\bwhat(?:'s| is)?\b.{0,20}\b(?:time|date|day)\b/i,
};

/**
 * The tool calls that a prompt asks for, in the order of the prompt: tools it names (with a JSON object behind the name
 * as arguments, where there is one), and the calculator or the clock where the words ask for them. Without ids.
 */
export function toolCallsFor(prompt: string, tools: ToolDeclaration[]): FunctionCall[] {
  const named = tools
    .map((tool) => ({ tool, place: placeOf(tool.name, prompt) }))
    .filter(({ place }) => place >= 0)
    .sort((one, other) => one.place - other.place)
    .map(({ tool }) => tool);
  const hinted = tools.filter((tool) => Object.hasOwn(HINTS, tool.name) && HINTS[tool.name]?.test(prompt));
  return (named.length > 0 ? named : hinted).map((tool) => ({ name: tool.name, args: argumentsFor(tool, prompt) }));
}

/** Where the prompt names the tool as a whole word (`load memory` counts for `load_memory`), else -1. */
function placeOf(name: string, prompt: string): number {
  const pattern = name.replaceAll(/[^A-Za-z0-9_]/g, (character) => `\\${character}`).replaceAll('_', '[_ ]');
  return prompt.search(new RegExp(`(?<![A-Za-z0-9_])${pattern}(?![A-Za-z0-9_])`, 'i'));
}

function argumentsFor(tool: ToolDeclaration, prompt: string): JsonObject {
  const rest = prompt.slice(Math.max(placeOf(tool.name, prompt), 0));
  return firstObject(rest) ?? firstObject(prompt) ?? fromWords(tool, prompt);
}

/** The first JSON object in a text. */
function firstObject(text: string): JsonObject | undefined {
  const start = text.indexOf('{');
  // Ends are tried from the left, at most 20 of them: a prompt full of braces must not cost quadratic time.
  if (start < 0) return undefined;
  let end = start;
  for (let tries = 0; tries < 20; tries += 1) {
    end = text.indexOf('}', end + 1);
    if (end < 0) return undefined;
    try {
      return JSON.parse(text.slice(start, end + 1)) as JsonObject;
    } catch {
      // Not the end of the object yet.
    }
  }
  return undefined;
}

interface Property {
  type?: unknown;
  enum?: unknown[];
}

/** Values for the required members, guessed from the prompt by their type; members that are not required stay out. */
function fromWords(tool: ToolDeclaration, prompt: string): JsonObject {
  const properties = (tool.parameters['properties'] ?? {}) as Record<string, Property>;
  const required = (tool.parameters['required'] ?? []) as string[];
  const zone = /\b[A-Z][A-Za-z]+\/[A-Z][A-Za-z_]+\b/.exec(prompt)?.[0];
  const args: JsonObject = {};
  for (const [name, property] of Object.entries(properties)) {
    const value = required.includes(name) ? valueFor(name, property, prompt) : undefined;
    if (value !== undefined) args[name] = value;
    else if (zone !== undefined && /^time_?zone$/i.test(name)) args[name] = zone;
  }
  return args;
}

function valueFor(name: string, property: Property, prompt: string): unknown {
  if (property.enum) return property.enum.find((value) => prompt.includes(String(value))) ?? property.enum[0];
  if (property.type === 'number' || property.type === 'integer')
    return Number(/-?\d+(?:\.\d+)?/.exec(prompt)?.[0] ?? 0);
  if (property.type === 'boolean') return !/\b(?:no|false|not)\b/i.test(prompt);
  if (property.type === 'array' || property.type === 'object') return undefined;
  if (name === 'expression') return expressionIn(prompt);
  if (/ur[il]$/i.test(name)) return /https?:\/\/[^\s"')]+/.exec(prompt)?.[0] ?? '';
  return /"([^"]*)"/.exec(prompt)?.[1] ?? prompt;
}

/** The longest run of a prompt that looks like arithmetic. */
function expressionIn(prompt: string): string {
  const runs = prompt.match(/(?:\b(?:sqrt|sin|cos|tan|log|exp|abs|round|pi)\b|[\d.+\-*/^()%×÷,\s])+/g) ?? [];
  const [longest = ''] = runs
    .map((run) =>
      run
        .replaceAll('×', '*')
        .replaceAll('÷', '/')
        .trim()
        .replace(/[.,\s]+$/, ''),
    )
    .filter((run) => /\d/.test(run))
    .sort((one, other) => other.length - one.length);
  return longest;
}
