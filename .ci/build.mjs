import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

// `npm run build`: dist/ is what the package and the container run. JavaScript with declarations, the OpenAPI document,
// and the committed build of the console. Beside it, vendor/ has the files of the development UI.
const root = fileURLToPath(new URL('..', import.meta.url));
const dist = join(root, 'dist');

rmSync(dist, { recursive: true, force: true });
execFileSync(join(root, 'node_modules/.bin/tsc'), ['-p', join(root, 'src/tsconfig.build.json')], { stdio: 'inherit' });
chmodSync(join(dist, 'main.js'), 0o755);
// Without its white space, which is a third of it.
const document = JSON.parse(readFileSync(join(root, 'src/platform/http/openapi/openapi.json'), 'utf8'));
writeFileSync(join(dist, 'platform/http/openapi/openapi.json'), JSON.stringify(document));
cpSync(join(root, 'console/dist'), join(dist, 'features/console/pages'), { recursive: true });
await import('./dev-ui.mjs');

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
