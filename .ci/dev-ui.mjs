import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// `npm run dev-ui`: fetches the files of the ADK Web UI and the font of its icons, unchanged, into vendor/. They are no
// dependencies, because that would install the server that the UI's package brings.
const vendor = fileURLToPath(new URL('../vendor/', import.meta.url));

/** What is taken of which package. A new version gets its checksum from `npm view <name>@<version> dist.integrity`. */
const PACKAGES = [
  {
    name: '@google/adk-devtools',
    version: '2.0.0',
    integrity: 'sha512-9q88zzLjSE5DQg+42JWBVZjEi4byuhKFod9T4jcgYj3IysulqDaEh+cObFe/54LJUI9RvpjFfAWxrC46BggYqQ==',
    // The client is for the tests.
    files: ['LICENSE', 'package.json', 'dist/browser', 'dist/esm/server/adk_api_client.js'],
  },
  {
    name: '@fontsource/material-symbols-outlined',
    version: '5.3.8',
    integrity: 'sha512-HpYZX5B3zfy70PX4xYYaGI9CCDRCjJcMumcshJDZbG3vtQBQPrBi7QIqaduCjDryo9Z8jNQFjj4378MMAWCkWw==',
    files: ['LICENSE', 'package.json', 'files/material-symbols-outlined-latin-400-normal.woff2'],
  },
];

const isHere = (folder, version) =>
  existsSync(folder) && JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version === version;

for (const { name, version, integrity, files } of PACKAGES) {
  const folder = join(vendor, name.split('/').at(-1));
  if (isHere(folder, version)) continue;
  const work = mkdtempSync(join(tmpdir(), 'agent-runtime-dev-ui-'));
  try {
    const npm = ['pack', `${name}@${version}`, '--silent', '--prefer-offline', '--pack-destination', work];
    execFileSync('npm', npm, { stdio: ['ignore', 'ignore', 'inherit'], shell: process.platform === 'win32' });
    const [tarball = ''] = readdirSync(work);
    const found = `sha512-${createHash('sha512')
      .update(readFileSync(join(work, tarball)))
      .digest('base64')}`;
    if (found !== integrity) throw new Error(`${name}@${version} is ${found}, not ${integrity}`);
    // Beside the folder, so that it appears at once and whole.
    const fresh = `${folder}-${process.pid}`;
    mkdirSync(fresh, { recursive: true });
    const members = files.map((file) => `package/${file}`);
    execFileSync('tar', ['-xzf', join(work, tarball), '-C', fresh, '--strip-components=1', ...members]);
    rmSync(folder, { recursive: true, force: true });
    renameSync(fresh, folder);
    console.log(`${name}@${version} is in ${folder}`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
