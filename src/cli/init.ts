import { cp, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { VERSION } from '../process/version.ts';
import { CommandError } from './output.ts';

/** The files of a new project; a dot that npm would leave out of a package is written as `_`. */
const TEMPLATE = fileURLToPath(new URL('../../template', import.meta.url));
/** Files that the directory may have already, as after `npm install agent-runtime`. */
const EXPECTED = new Set(['node_modules', 'package.json', 'package-lock.json', '.git']);

/** Creates a project in an empty directory. @throws {CommandError} where the directory has other files */
export async function init(directory: string): Promise<void> {
  const target = resolve(directory);
  await mkdir(target, { recursive: true });
  const present = await readdir(target);
  const other = present.find((name) => !EXPECTED.has(name));
  if (other !== undefined)
    throw new CommandError(`${join(directory, other)} is there already; choose an empty directory.`, 2);
  const { dependencies } = await readManifest(target);
  await cp(TEMPLATE, target, { recursive: true });
  await rename(join(target, '_gitignore'), join(target, '.gitignore'));
  const manifest = await readManifest(target);
  // Keeps the specifier of an installed dependency: a version, a file, an address.
  manifest.dependencies = { 'agent-runtime': VERSION, ...dependencies };
  manifest.name = basename(target)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]/g, '-');
  await writeFile(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  const steps = present.includes('node_modules') ? [] : ['npm install'];
  const go = directory === '.' ? [] : [`cd ${directory}`];
  console.log(`Made an agent in ${target}.\nNow: ${[...go, ...steps, 'npm start'].join(' && ')}`);
}

async function readManifest(directory: string): Promise<{ name?: string; dependencies?: Record<string, string> }> {
  const text = await readFile(join(directory, 'package.json'), 'utf8').catch(() => '{}');
  return JSON.parse(text) as { name?: string; dependencies?: Record<string, string> };
}
