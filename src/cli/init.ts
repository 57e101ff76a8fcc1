import { existsSync, statSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { CommandError } from './output.ts';

/** Directory of this installation: a directory in `node_modules`, or a clone of the repository. */
const HOME = fileURLToPath(new URL('../..', import.meta.url));
/** The files of a new project. A leading `_` becomes a dot, because npm leaves some dot files out of a package. */
const TEMPLATE = join(HOME, 'template');
/** The example agent and its test. If the project has this directory already, no file of it is added or replaced. */
const AGENT = 'agents/harness_agent';

/** The members of package.json that `init` merges. */
type Manifest = Partial<Record<'scripts' | 'dependencies' | 'devDependencies', Record<string, string>>> & {
  name?: string;
  type?: string;
  allowScripts?: Record<string, boolean>;
};

/**
 * Makes a project: adds missing files, replaces none, and prints which were added and which were kept. Idempotent.
 * @throws {CommandError} if the path is a file, or the directory's package.json cannot be read
 */
export async function init(directory: string): Promise<void> {
  const target = resolve(directory);
  if (existsSync(target) && !statSync(target).isDirectory())
    throw new CommandError(`${directory} is a file; name a directory.`, 2);
  const { added, kept } = await mergeManifest(target);
  const hasAgent = existsSync(join(target, AGENT));
  for (const entry of await readdir(TEMPLATE, { recursive: true, withFileTypes: true })) {
    const source = join(entry.parentPath, entry.name);
    const file = relative(TEMPLATE, source).replace(/^_/, '.').replaceAll('\\', '/');
    if (!entry.isFile() || file === 'package.json') continue;
    const isThere = existsSync(join(target, file)) || (hasAgent && file.startsWith(AGENT));
    (isThere ? kept : added).push(file);
    if (isThere) continue;
    await mkdir(dirname(join(target, file)), { recursive: true });
    await copyFile(source, join(target, file));
  }
  const build = existsSync(join(HOME, 'dist')) ? [] : [`npm run build --prefix ${HOME}`];
  const start = kept.includes('scripts.start') ? 'npx agent-runtime start' : 'npm start';
  const go = directory === '.' ? [] : [`cd ${directory}`];
  const lines = [`An agent is in ${target}.`, ...(added.length > 0 ? [`Added: ${added.join(', ')}`] : [])];
  if (kept.length > 0) lines.push(`Kept as it was: ${kept.join(', ')}`);
  console.log([...lines, `Now: ${[...build, ...go, 'npm install', start].join(' && ')}`].join('\n'));
}

/** Adds missing members to package.json. @returns names of `added` members, and of scripts `kept` with another text */
async function mergeManifest(target: string): Promise<{ added: string[]; kept: string[] }> {
  const path = join(target, 'package.json');
  const present = existsSync(path) ? await readManifest(path) : undefined;
  const ours = await readTemplate();
  const name = basename(target)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]/g, '-');
  // `npm install` in an empty directory writes dependencies alone. Elsewhere a `type` would change how files are loaded.
  const isNew = Object.keys(present ?? {}).every((member) => member === 'dependencies');
  const merged: Manifest = isNew ? { ...ours, name, ...present } : { ...present };
  const added: string[] = present ? [] : ['package.json'];
  const kept: string[] = [];
  ours.dependencies = { 'agent-runtime': await findSpecifier(target) };
  for (const part of ['scripts', 'dependencies', 'devDependencies'] as const) {
    const existing = { ...present?.dependencies, ...present?.devDependencies, ...present?.[part] };
    const names = Object.keys(ours[part] ?? {});
    const absent = names.filter((each) => existing[each] === undefined);
    if (present) added.push(...absent.map((each) => `${part}.${each} of package.json`));
    if (part === 'scripts')
      kept.push(
        ...names
          .filter((each) => existing[each] && existing[each] !== ours[part]?.[each])
          .map((each) => `scripts.${each}`),
      );
    const additions = Object.fromEntries(absent.map((each) => [each, ours[part]?.[each] ?? '']));
    if (absent.length > 0) merged[part] = { ...present?.[part], ...additions };
  }
  merged.allowScripts = { ...ours.allowScripts, ...present?.allowScripts };
  if (present) {
    const members = ['type', 'allowScripts'] as const;
    const differs = (member: (typeof members)[number]) => !isDeepStrictEqual(merged[member], present[member]);
    added.push(...members.filter(differs).map((member) => `${member} of package.json`));
  }
  await mkdir(target, { recursive: true });
  if (added.length > 0) await writeFile(path, `${JSON.stringify(merged, null, 2)}\n`);
  return { added, kept };
}

/** With `exec` node is the child of npm, which sends a SIGTERM to its child alone. `cmd.exe` has no `exec`. */
async function readTemplate(): Promise<Manifest> {
  const manifest = await readManifest(join(TEMPLATE, 'package.json'));
  if (process.platform !== 'win32') return manifest;
  const scripts = Object.entries(manifest.scripts ?? {}).map(([name, script]) => [name, script.replace(/^exec /, '')]);
  return { ...manifest, scripts: Object.fromEntries(scripts) };
}

async function readManifest(path: string): Promise<Manifest> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Manifest;
  } catch (error) {
    throw new CommandError(`${path} cannot be read: ${(error as Error).message}`, 2);
  }
}

/** The version specifier by which this installation was installed (npx included), or else a `file:` path to it. */
async function findSpecifier(target: string): Promise<string> {
  const root = join(HOME, '../..');
  const isInstalled = basename(dirname(HOME)) === 'node_modules' && existsSync(join(root, 'package.json'));
  const { dependencies = {} } = isInstalled ? await readManifest(join(root, 'package.json')) : {};
  const specifier = dependencies['agent-runtime'] ?? `file:${HOME}`;
  const from = isInstalled ? root : '/';
  return specifier.startsWith('file:')
    ? `file:${relative(target, resolve(from, specifier.slice(5))) || '.'}`
    : specifier;
}
