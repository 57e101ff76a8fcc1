import { AgentError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import type { ToolServices } from '../definition/tool.ts';

/**
 * `{name}`, `{app:name}`, `{artifact.name}`, each with `?` for "may be missing"; other braces stay as they are (ADK).
 */
const PLACEHOLDER =
  /\{(?:artifact\.(?<artifact>[^{}?\n]{1,256})|(?<key>(?:(?:app|user|temp):)?[A-Za-z_]\w{0,255}))(?<optional>\?)?\}/g;
/** Maximum length of an artifact that is put into an instruction, in characters. */
const MAX_ARTIFACT = 100_000;

/**
 * An instruction with its placeholders filled in from the state and the artifacts. What is put in is not read again.
 * @throws {AgentError} `instruction_unset` for a name that has no value and no `?`.
 */
export async function renderInstruction(
  template: string,
  state: Readonly<JsonObject>,
  services: Pick<ToolServices, 'loadArtifact'>,
): Promise<string> {
  const pieces: string[] = [];
  let end = 0;
  for (const match of template.matchAll(PLACEHOLDER)) {
    const { artifact, key = '', optional } = match.groups ?? {};
    const value = artifact === undefined ? valueOf(state, key) : await artifactText(artifact, services);
    if (value === undefined && optional === undefined) throw unset(artifact, key);
    pieces.push(template.slice(end, match.index), value ?? '');
    end = match.index + match[0].length;
  }
  return [...pieces, template.slice(end)].join('');
}

function valueOf(state: Readonly<JsonObject>, key: string): string | undefined {
  const value = Object.hasOwn(state, key) ? state[key] : undefined;
  if (value === undefined || value === null) return undefined;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

async function artifactText(name: string, services: Pick<ToolServices, 'loadArtifact'>): Promise<string | undefined> {
  const part = await services.loadArtifact(name);
  if (typeof part?.text === 'string') return part.text.slice(0, MAX_ARTIFACT);
  if (!part?.inlineData?.data) return undefined;
  return Buffer.from(part.inlineData.data, 'base64').toString().slice(0, MAX_ARTIFACT);
}

function unset(artifact: string | undefined, key: string): AgentError {
  const what =
    artifact === undefined ? `a value for \`${key}\` in the session's state` : `the artifact \`${artifact}\``;
  const written = artifact === undefined ? key : `artifact.${artifact}`;
  const advice = `Set it, or write {${written}?} if it may be missing.`;
  const text = `The instruction of the agent needs ${what}, which is not there. ${advice}`;
  return new AgentError('instruction_unset', text);
}
