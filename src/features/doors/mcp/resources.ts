import { isUtf8 } from 'node:buffer';
import { ResourceNotFoundError } from '@modelcontextprotocol/server';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import { storedIdentifierSchema } from '../../../core/session.ts';
import { type ArtifactPlace, listArtifactsOfUser } from '../../../conversation/artifacts/artifact-store.ts';
import { loadArtifact } from '../../../conversation/artifacts/artifacts.ts';
import type { McpCall } from './mcp-call.ts';

const PAGE = 100;
/** Maximum bytes of an artifact that is read as a resource. */
const MAX_BYTES = 4_194_304;
/** Stands for the session id in the URI of an artifact that belongs to a user and not to a session. */
const OF_USER = '-';
const TEXT = /^text\/|[/+](?:json|xml|yaml)$/;
const URI = /^artifact:\/\/([^/?#]+)\/([^/?#]+)\/([^/?#]+)(?:\?version=(\d{1,10}))?$/;

export const toUri = ({ appName, sessionId, artifactName }: ArtifactPlace): string =>
  `artifact://${[appName, sessionId || OF_USER, artifactName].map(encodeURIComponent).join('/')}`;

/** Lists one page of a user's artifacts. @throws {InvalidError} if the cursor is unknown */
export async function listResources({ context, userId, appNames }: McpCall, cursor: string | undefined) {
  const after = cursor === undefined ? undefined : parseUri(cursor);
  if (cursor !== undefined && !after) throw new InvalidError('The cursor is none of this list.');
  const artifacts = await listArtifactsOfUser(context.database.reads, userId, { appNames, after, limit: PAGE });
  const last = artifacts.length === PAGE ? artifacts.at(-1) : undefined;
  return {
    resources: artifacts.map((place) => ({ uri: toUri(place), name: place.artifactName })),
    ...(last ? { nextCursor: toUri(last) } : {}),
  };
}

export const listTemplates = ({ appNames }: McpCall) => ({
  resourceTemplates: appNames.map((name) => ({
    name,
    uriTemplate: `artifact://${encodeURIComponent(name)}/{session}/{artifact}{?version}`,
    description: `An artifact of ${name}: the newest version, or the one that is named.`,
  })),
});

/** @throws {ResourceNotFoundError} @throws {TooLargeError} */
export async function readResource({ context, userId, appNames }: McpCall, uri: string) {
  const place = parseUri(uri);
  if (!place || !appNames.includes(place.appName)) throw new ResourceNotFoundError(uri);
  const { version, ...key } = place;
  const { database, contentStore } = context;
  const loaded = await loadArtifact(database.reads, contentStore, { ...key, userId }, version, MAX_BYTES);
  if (!loaded) throw new ResourceNotFoundError(uri);
  const { part, bytes, mimeType } = loaded;
  if (!bytes) throw new InvalidError(`It is a reference to a file elsewhere: ${part.fileData?.fileUri}`);
  const type = mimeType === undefined ? {} : { mimeType };
  const isText = TEXT.test(mimeType ?? '') && isUtf8(bytes);
  return {
    contents: [{ uri, ...type, ...(isText ? { text: bytes.toString() } : { blob: bytes.toString('base64') }) }],
  };
}

function parseUri(uri: string): (ArtifactPlace & { version: number | undefined }) | undefined {
  const [, ...groups] = URI.exec(uri) ?? [];
  const version = groups.pop();
  try {
    const names = groups.map((name) => decodeURIComponent(name ?? ''));
    const [appName, sessionId, artifactName] = names;
    if (!appName || !sessionId || !artifactName) return undefined;
    if (!names.every((name) => storedIdentifierSchema.safeParse(name).success)) return undefined;
    const place = { appName, sessionId: sessionId === OF_USER ? '' : sessionId, artifactName };
    return { ...place, version: version === undefined ? undefined : Number(version) };
  } catch {
    return undefined;
  }
}

export async function listPrompts(call: McpCall) {
  const skills = await listSkills(call);
  return { prompts: skills.map(({ name, skill: { description } }) => ({ name, description })) };
}

/** @throws {NotFoundError} if no skill has this name */
export async function getPrompt(call: McpCall, name: string) {
  const prompt = (await listSkills(call)).find((each) => each.name === name);
  if (!prompt) throw new NotFoundError(`Prompt not found: ${name}`);
  const { description, body: text } = prompt.skill;
  return { description, messages: [{ role: 'user' as const, content: { type: 'text' as const, text } }] };
}

async function listSkills({ context: { agents }, appNames }: McpCall) {
  const lists = appNames.map(async (app) => {
    const skills = (await agents.get(app)?.listSkills?.()) ?? [];
    return skills.map((skill) => ({ name: `${app}/${skill.name}`, skill }));
  });
  return (await Promise.all(lists)).flat();
}
