import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

// `npm run build`: dist/ is what the package and the container run. JavaScript with declarations, the OpenAPI document,
// the committed build of the console, and the files of the development UI, so that its package with all that its server
// needs stays out.
const root = fileURLToPath(new URL('..', import.meta.url));
const require = createRequire(import.meta.url);
const dist = join(root, 'dist');

rmSync(dist, { recursive: true, force: true });
execFileSync(join(root, 'node_modules/.bin/tsc'), ['-p', join(root, 'src/tsconfig.build.json')], { stdio: 'inherit' });
chmodSync(join(dist, 'main.js'), 0o755);
// Without its white space, which is a third of it.
const document = JSON.parse(readFileSync(join(root, 'src/platform/http/openapi/openapi.json'), 'utf8'));
writeFileSync(join(dist, 'platform/http/openapi/openapi.json'), JSON.stringify(document));
const ui = join(dirname(require.resolve('@google/adk-devtools')), '..');
cpSync(join(ui, 'browser'), join(dist, 'features/doors/adk/browser'), { recursive: true });
cpSync(join(root, 'console/dist'), join(dist, 'features/console/pages'), { recursive: true });
copyFileSync(join(ui, '..', 'LICENSE'), join(dist, 'features/doors/adk/browser/LICENSE'));
// One font of 5 MB of them.
const font = join(root, 'node_modules/@fontsource/material-symbols-outlined');
const weight = 'material-symbols-outlined-latin-400-normal.woff2';
copyFileSync(join(font, 'files', weight), join(dist, 'features/doors/adk/icons.woff2'));
copyFileSync(join(font, 'LICENSE'), join(dist, 'features/doors/adk/icons.LICENSE'));

// Declarations that the entry points of the package do not reach describe nothing for its users.
const reached = new Set();
const reach = (file) => {
  if (reached.has(file) || !existsSync(file)) return;
  reached.add(file);
  for (const [, path] of readFileSync(file, 'utf8').matchAll(/['"](\.{1,2}\/[^'"]+)\.(?:js|ts)['"]/g))
    reach(join(dirname(file), `${path}.d.ts`));
};
for (const entry of ['index', 'testing']) reach(join(dist, `process/${entry}.d.ts`));
for (const path of readdirSync(dist, { recursive: true }))
  if (path.endsWith('.d.ts') && !reached.has(join(dist, path))) rmSync(join(dist, path));
