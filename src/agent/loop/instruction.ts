import { AgentError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import type { ToolServices } from '../definition/services.ts';

/** `{name}`, `{app:name}` or `{artifact.name}`; `?` allows a missing value. Other braces stay as text (as in ADK). */
const PLACEHOLDER =
  /\{(?:artifact\.(?<artifact>[^{}?\n]{1,256})|(?<key>(?:(?:app|user|temp):)?[A-Za-z_]\w{0,255}))(?<optional>\?)?\}/g;
/** Returns the state keys and artifact names in an instruction's placeholders, each once, in order. */
export function findPlaceholders(template: string): { keys: string[]; artifacts: string[] } {
  const matches = [...template.matchAll(PLACEHOLDER)].map(({ groups }) => groups ?? {});
  const each = (name: 'key' | 'artifact') => [...new Set(matches.flatMap((groups) => groups[name] ?? []))];
  return { keys: each('key'), artifacts: each('artifact') };
}

/** Maximum length of an artifact that is inserted into an instruction, in characters. */
const MAX_ARTIFACT = 100_000;
/** Length of base64 that holds `MAX_ARTIFACT` characters of up to 4 bytes: 4 characters of base64 are 3 bytes. */
const MAX_ARTIFACT_BASE64 = Math.ceil((MAX_ARTIFACT * 4) / 3) * 4;
/** Maximum size of an instruction after its placeholders are replaced, in bytes of UTF-8. */
const MAX_INSTRUCTION_BYTES = 262_144;

/** A piece of an instruction: text of the template, or the value of a placeholder. */
export interface InstructionPiece {
  text: string;
  key?: string;
  artifact?: string;
}

export const renderInstruction = async (...args: Parameters<typeof renderPieces>): Promise<string> =>
  (await renderPieces(...args)).map(({ text }) => text).join('');

/**
 * Replaces the placeholders of an instruction by state values and artifacts; placeholders in inserted text are not
 * replaced. The size is checked after each insertion, because a template of 4 KB can insert a value of 1 MB five
 * hundred times.
 * @throws {AgentError} `instruction_unset` for a placeholder without value and without `?`; `instruction_too_large`
 * above 256 KB
 */
export async function renderPieces(
  template: string,
  state: Readonly<JsonObject>,
  services: Pick<ToolServices, 'loadArtifact'>,
): Promise<InstructionPiece[]> {
  const pieces: InstructionPiece[] = [];
  let bytes = 0;
  const add = (text: string, from: Omit<InstructionPiece, 'text'> = {}) => {
    bytes += Buffer.byteLength(text);
    if (bytes > MAX_INSTRUCTION_BYTES) throw tooLarge();
    if (text !== '') pieces.push({ text, ...from });
  };
  let end = 0;
  for (const match of template.matchAll(PLACEHOLDER)) {
    const { artifact, key = '', optional } = match.groups ?? {};
    const value = artifact === undefined ? findValue(state, key) : await artifactText(artifact, services);
    if (value === undefined && optional === undefined) throw unset(artifact, key);
    add(template.slice(end, match.index));
    add(value ?? '', artifact === undefined ? { key } : { artifact });
    end = match.index + match[0].length;
  }
  add(template.slice(end));
  return pieces;
}

function findValue(state: Readonly<JsonObject>, key: string): string | undefined {
  const value = Object.hasOwn(state, key) ? state[key] : undefined;
  if (value === undefined || value === null) return undefined;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

async function artifactText(name: string, services: Pick<ToolServices, 'loadArtifact'>): Promise<string | undefined> {
  const part = await services.loadArtifact(name);
  if (typeof part?.text === 'string') return part.text.slice(0, MAX_ARTIFACT);
  if (!part?.inlineData?.data) return undefined;
  return Buffer.from(part.inlineData.data.slice(0, MAX_ARTIFACT_BASE64), 'base64').toString().slice(0, MAX_ARTIFACT);
}

function tooLarge(): AgentError {
  const what = 'The instruction of the agent with its placeholders filled in';
  const advice = 'Put less into the state and the artifacts that it names.';
  const text = `${what} is larger than ${MAX_INSTRUCTION_BYTES} bytes. ${advice}`;
  return new AgentError('instruction_too_large', text);
}

function unset(artifact: string | undefined, key: string): AgentError {
  const what =
    artifact === undefined ? `a value for \`${key}\` in the session's state` : `the artifact \`${artifact}\``;
  const written = artifact === undefined ? key : `artifact.${artifact}`;
  const advice = `Set it, or write {${written}?} if it may be missing.`;
  const text = `The instruction of the agent needs ${what}, which is not there. ${advice}`;
  return new AgentError('instruction_unset', text);
}
