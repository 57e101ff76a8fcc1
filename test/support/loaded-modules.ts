import { statSync, writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';

/**
 * Loaded with `--import` into a process whose modules are counted: when it ends, their paths and bytes are in the file
 * `LOADED_MODULES`, a line each, in the order in which they were loaded.
 */

const loaded = new Set<string>();
registerHooks({
  load(url, context, next) {
    if (url.startsWith('file:') && url !== import.meta.url) loaded.add(url);
    return next(url, context);
  },
});
process.on('exit', () => {
  const lines = [...loaded].map((url) => fileURLToPath(url)).map((path) => `${statSync(path).size} ${path}`);
  writeFileSync(process.env['LOADED_MODULES'] ?? '', lines.join('\n'));
});
