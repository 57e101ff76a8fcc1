import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Writes the manifest of an installation with all that the service can use: the packages that its users install when
 * they need them (`peerDependencies`) are dependencies, in the versions that the tests have. The lock fits both.
 */
export function writeWhole(from, to) {
  const manifest = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8'));
  for (const name of Object.keys(manifest.peerDependencies)) {
    manifest.dependencies[name] = manifest.devDependencies[name];
    delete manifest.devDependencies[name];
  }
  delete manifest.peerDependencies;
  delete manifest.peerDependenciesMeta;
  writeFileSync(join(to, 'package.json'), JSON.stringify(manifest, null, 2));
}

// For the container: in place.
if (process.argv[1] === import.meta.filename) writeWhole('.', '.');
