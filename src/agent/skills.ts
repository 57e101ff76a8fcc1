import { lstat, open, readdir, realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { z } from 'zod';
import { AgentError } from '../core/errors.ts';
import { type Tool, toParameters } from './definition/tool.ts';

/** Name of a skill: of its directory, and in its front matter. */
const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
/** Maximum size of a skill's `SKILL.md`, and of each of its resource files. */
const MAX_FILE_BYTES = 100 * 1024;
/** Limits of the list of a skill's resources: number of files, and depth of folders. */
const MAX_RESOURCES = 200;
const MAX_DEPTH = 4;

const frontMatterSchema = z.looseObject({
  name: z.string().optional(),
  // A description longer than the 1,024 characters of the Agent Skills format is cut.
  description: z
    .string()
    .trim()
    .min(1)
    .transform((text) => text.slice(0, 1_024)),
});

/** A skill in the open Agent Skills format: a directory with a file `SKILL.md`. */
export interface Skill {
  name: string;
  description: string;
  body: string;
  /** Path of the skill's directory, with links resolved. */
  directory: string;
}

/**
 * Loads the named skills; executes nothing. A skill that exists but cannot be read is skipped; `warn` receives its name
 * and the reason.
 * @throws {AgentError} `unknown_skill` for the first skill that does not exist
 */
export async function loadSkills(
  skillsDir: string | undefined,
  names: string[],
  warn: (text: string) => void = () => undefined,
): Promise<Skill[]> {
  if (names.length === 0) return [];
  const root = skillsDir === undefined ? undefined : await realpath(skillsDir).catch(() => undefined);
  // The directory of skills is listed once, instead of one look-up for each missing name.
  const existing = new Set(root === undefined ? [] : await readdir(root).catch(() => []));
  const uniqueNames = [...new Set(names)];
  const unknown = uniqueNames.find((name) => !NAME.test(name) || !existing.has(name));
  if (root === undefined || unknown !== undefined) {
    const noRoot =
      skillsDir === undefined
        ? 'no skills directory is configured: set SKILLS_DIR to the directory that has the directory of the skill'
        : 'the skills directory does not exist';
    const reason =
      root === undefined ? noRoot : unknown && NAME.test(unknown) ? 'there is no such file' : 'its name is not valid';
    throw new AgentError('unknown_skill', `Skill \`${unknown ?? uniqueNames[0]}\` failed to load: ${reason}`);
  }
  const loaded = await Promise.all(
    uniqueNames.map((name) =>
      loadSkill(join(root, name), name).catch((error: unknown) => {
        const reason = error instanceof SkillProblem ? error.message : 'it cannot be read';
        warn(`Skill \`${name}\` is left out: ${reason}.`);
        return [];
      }),
    ),
  );
  return loaded.flat();
}

async function loadSkill(directory: string, name: string): Promise<Skill[]> {
  const { front, body } = parseSkill((await readInside(directory, 'SKILL.md')).toString());
  const { name: own = name, description } = toFrontMatter(await parseFrontMatter(front));
  if (own !== name) throw new SkillProblem(`its SKILL.md names it \`${own.slice(0, 64)}\``);
  return [{ name, description, body, directory }];
}

class SkillProblem extends Error {}

function parseSkill(text: string): { front: string; body: string } {
  const [, front, body] =
    /^---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)([\s\S]*)$/.exec(text.replace(/^\uFEFF/, '')) ?? [];
  if (front === undefined || body === undefined) throw new SkillProblem('its SKILL.md has no front matter');
  return { front, body: body.trim() };
}

function toFrontMatter(front: unknown): { name?: string | undefined; description: string } {
  const parsed = frontMatterSchema.safeParse(front);
  if (parsed.success) return parsed.data;
  throw new SkillProblem(`its SKILL.md needs a valid ${String(parsed.error.issues[0]?.path[0] ?? 'front matter')}`);
}

/** Reads `name` and `description` line by line if the YAML is invalid, such as a description with a colon. */
async function parseFrontMatter(text: string): Promise<unknown> {
  const { parse } = await import('yaml');
  try {
    return parse(text, { maxAliasCount: 0, logLevel: 'error' });
  } catch {
    const members = [...text.matchAll(/^(name|description):[ \t]*(.*(?:\r?\n[ \t]+\S.*)*)/gm)];
    return Object.fromEntries(
      members.map(([, name, value = '']) => [name, unquote(value.replaceAll(/\s+/g, ' ').trim())]),
    );
  }
}

const unquote = (text: string): string => text.replace(/^(?:[>|][+-]? )/, '').replace(/^(["'])(.*)\1$/, '$2');

/** Reads a regular file below a skill's directory; throws for a link, because it could lead outside. */
async function readInside(directory: string, path: string): Promise<Buffer> {
  const steps = path.split('/');
  if (
    path.includes('\\') ||
    path.includes('\0') ||
    steps.some((step) => step === '' || step === '.' || step === '..')
  ) {
    throw new SkillProblem('the path is not allowed');
  }
  let place = directory;
  await checkStep(place, steps.length > 0);
  for (const [index, step] of steps.entries()) {
    place = join(place, step);
    await checkStep(place, index < steps.length - 1);
  }
  // The path is resolved again, because a folder on it may have been replaced by a link since the first check.
  if (!(await realpath(place)).startsWith(directory + sep)) throw new SkillProblem('the path is not allowed');
  const file = await open(place, 'r');
  try {
    const { size } = await file.stat();
    if (size > MAX_FILE_BYTES) throw new SkillProblem(`${path} is larger than ${MAX_FILE_BYTES} bytes`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

async function checkStep(place: string, wantsDirectory: boolean): Promise<void> {
  const stats = await lstat(place).catch(() => undefined);
  if (!stats) throw new SkillProblem('there is no such file');
  if (stats.isSymbolicLink()) throw new SkillProblem('links are not followed');
  if (wantsDirectory ? !stats.isDirectory() : !stats.isFile()) throw new SkillProblem('there is no such file');
}

/** Sorted paths of a skill's resource files, without links and hidden files. */
async function listResources(directory: string, below = '', depth = 1): Promise<string[]> {
  const entries = await readdir(join(directory, below), { withFileTypes: true });
  const paths = await Promise.all(
    entries
      .filter((entry) => !entry.name.startsWith('.'))
      .map(async (entry) => {
        const path = below === '' ? entry.name : `${below}/${entry.name}`;
        if (entry.isFile()) return path === 'SKILL.md' ? [] : [path];
        return entry.isDirectory() && depth < MAX_DEPTH ? listResources(directory, path, depth + 1) : [];
      }),
  );
  return paths.flat().sort().slice(0, MAX_RESOURCES);
}

/** Lists names and descriptions only, because the model loads the instructions of a skill on demand. */
export function skillsInstruction(skills: Skill[]): string {
  if (skills.length === 0) return '';
  const list = skills.map(({ name, description }) => `- ${name}: ${description.replaceAll(/\s+/g, ' ')}`).join('\n');
  return `\n\nYou have these skills. Before you use one, load its instructions with \`load_skill\`.\n${list}`;
}

const skillName = (skills: Skill[]) => ({ type: 'string', enum: skills.map(({ name }) => name) });

export function skillTools(skills: Skill[]): Tool[] {
  if (skills.length === 0) return [];
  const find = (name: unknown) => skills.find((skill) => skill.name === name) as Skill;

  return [
    {
      name: 'load_skill',
      description: 'Loads the instructions of a skill and the names of its resources.',
      parameters: toParameters({ name: skillName(skills) }, 'name'),
      needsConfirmation: false,
      effect: 'none',
      async run(args) {
        const { name, body, directory } = find(args['name']);
        return { name, instructions: body, resources: await listResources(directory) };
      },
    },
    {
      name: 'load_skill_resource',
      description: 'Loads one resource of a skill: text as it is, other files as base64.',
      parameters: toParameters(
        {
          name: skillName(skills),
          path: { type: 'string', minLength: 1, maxLength: 500, description: 'As `load_skill` lists it.' },
        },
        'name',
        'path',
      ),
      needsConfirmation: false,
      effect: 'none',
      async run(args) {
        const path = String(args['path']);
        return toResource(path, await readInside(find(args['name']).directory, path));
      },
    },
  ];
}

function toResource(path: string, bytes: Buffer) {
  try {
    return { path, text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch {
    return { path, base64: bytes.toString('base64') };
  }
}
