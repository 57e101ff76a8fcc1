import { enableCompileCache, registerHooks, type ResolveHookSync } from 'node:module';
import { fileURLToPath } from 'node:url';

/** URL of the directory `src/` or `dist/` of this installation. */
const OWN = new URL('..', import.meta.url).href;
/** Modules that agents import by the package's name. They must get the same instances as the service. */
const ENTRIES = new Map(
  ['index', 'testing'].map((entry) => [
    entry === 'index' ? 'agent-runtime' : `agent-runtime/${entry}`,
    new URL(`process/${entry}.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, OWN).href,
  ]),
);
/** Matches files of drizzle and zod. All of them are ES modules and import each other by full file names. */
const IN_PACKAGES = /\/node_modules\/(?:drizzle-orm|zod)\/.*\.js$/;

interface ResolvedFile {
  url: string;
  format: 'module' | 'module-typescript';
}

/** Resolves imports of this package by its name, and relative ones in files of the runtime, drizzle and zod. */
export function resolveByPlace(specifier: string, parentUrl: string | undefined): ResolvedFile | undefined {
  const entry = ENTRIES.get(specifier);
  if (entry !== undefined) return toFound(entry);
  const [, extension] = /^\.\.?\/.*\.([jt]s)$/.exec(specifier) ?? [];
  if (extension === undefined || parentUrl === undefined) return undefined;
  if (!parentUrl.startsWith(OWN) && !IN_PACKAGES.test(parentUrl)) return undefined;
  return toFound(new URL(specifier, parentUrl).href);
}

const toFound = (url: string): ResolvedFile => ({ url, format: url.endsWith('.ts') ? 'module-typescript' : 'module' });

/** Compile cache in `node_modules`, because whoever may write there can change the code anyway. */
const CACHE = fileURLToPath(new URL('../../node_modules/.cache/agent-runtime', import.meta.url));

/**
 * Makes later imports faster: for each, Node 24 reads the disk and parses the package's `exports`, at a start 0.4 s of
 * CPU and 50 MB. Compiled code, and code with stripped types, come from a cache if its directory is writable.
 */
export function loadFaster(): void {
  enableCompileCache(CACHE);
  const packages = new Map<string, ReturnType<ResolveHookSync>>();
  registerHooks({
    resolve(specifier, context, next) {
      const file = resolveByPlace(specifier, context.parentURL);
      if (file) return { ...file, shortCircuit: true };
      const isOwn = context.parentURL?.startsWith(OWN) === true && context.conditions.includes('import');
      if (!isOwn || /^[./]/.test(specifier)) return next(specifier, context);
      // A package is resolved once, because all files of this installation use the same version of it.
      const resolution = packages.get(specifier) ?? next(specifier, context);
      packages.set(specifier, resolution);
      return { ...resolution, shortCircuit: true };
    },
  });
}
