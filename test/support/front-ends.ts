import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** The packages of front ends stand apart in `examples/front-ends`: a clone does not install them. */
const directory = fileURLToPath(new URL('../../examples/front-ends/', import.meta.url));
const lock = `${directory}node_modules/.package-lock.json`;

/** What `npm run dev-ui` fetches of the ADK's package. */
export const ADK_FILES = fileURLToPath(new URL('../../vendor/adk-devtools/', import.meta.url));

/** Installs them, and fetches the ADK Web UI, where they are not there, before the first worker of the tests starts. */
export default function setup(): void {
  execFileSync(process.execPath, [fileURLToPath(new URL('../../.ci/dev-ui.mjs', import.meta.url))], {
    stdio: 'inherit',
  });
  if (existsSync(lock)) return;
  execFileSync('npm', ['ci'], { cwd: directory, stdio: 'inherit', shell: process.platform === 'win32' });
}

/** Finds a file of a package of a front end. */
export const resolveFrontEnd = (name: string): string => createRequire(`${directory}package.json`).resolve(name);

/** Loads a package of a front end. */
export const loadFrontEnd = (name: string): Promise<unknown> => import(pathToFileURL(resolveFrontEnd(name)).href);
