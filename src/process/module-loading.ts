import { enableCompileCache, registerHooks, type ResolveHookSync } from 'node:module';
import { fileURLToPath } from 'node:url';

/** Where this installation's own files lie: `src/` or `dist/`. */
const OWN = new URL('..', import.meta.url).href;
/** The package's entries, which the agents of a clone and of a project import by its name: one copy of each module. */
const ENTRIES = new Map(
  ['index', 'testing'].map((entry) => [
    entry === 'index' ? 'agent-runtime' : `agent-runtime/${entry}`,
    new URL(`process/${entry}.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, OWN).href,
  ]),
);
/** Files of drizzle and zod: all of them are modules, and name each other in full. */
const IN_PACKAGES = /\/node_modules\/(?:drizzle-orm|zod)\/.*\.js$/;

/** A file that is found by its name alone. */
interface Found {
  url: string;
  format: 'module' | 'module-typescript';
}

/** The file of an import of this package, or by place in a file of ours, of drizzle or of zod; else `undefined`. */
export function resolveByPlace(specifier: string, parentUrl: string | undefined): Found | undefined {
  const entry = ENTRIES.get(specifier);
  if (entry !== undefined) return toFound(entry);
  const [, extension] = /^\.\.?\/.*\.([jt]s)$/.exec(specifier) ?? [];
  if (extension === undefined || parentUrl === undefined) return undefined;
  if (!parentUrl.startsWith(OWN) && !IN_PACKAGES.test(parentUrl)) return undefined;
  return toFound(new URL(specifier, parentUrl).href);
}

const toFound = (url: string): Found => ({ url, format: url.endsWith('.ts') ? 'module-typescript' : 'module' });

/** Where the compiled code of this installation is kept: only who may write its packages may write there. */
const CACHE = fileURLToPath(new URL('../../node_modules/.cache/agent-runtime', import.meta.url));

/**
 * Makes later imports faster: Node 24 reads the disk for each and parses the `exports` of its package, which takes
 * 0.4 s of CPU and 50 MB at a start. Compiled and stripped code comes from a cache, where that can be written.
 */
export function loadFaster(): void {
  enableCompileCache(CACHE);
  const packages = new Map<string, ReturnType<ResolveHookSync>>();
  registerHooks({
    resolve(specifier, context, next) {
      const found = resolveByPlace(specifier, context.parentURL);
      if (found) return { ...found, shortCircuit: true };
      const isOwn = context.parentURL?.startsWith(OWN) === true && context.conditions.includes('import');
      if (!isOwn || /^[./]/.test(specifier)) return next(specifier, context);
      // The same for all files of this installation.
      const known = packages.get(specifier) ?? next(specifier, context);
      packages.set(specifier, known);
      return { ...known, shortCircuit: true };
    },
  });
}
