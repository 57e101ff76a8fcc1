import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/**
 * `npm run bench -- <name> [options]` runs the benchmark of a name; without a name, the one beside other servers, whose
 * packages it installs first. Each benchmark is a process of its own, so that none measures what another has loaded.
 */
const NAMES = [
  'cronjobs',
  'deltas',
  'doors',
  'evals',
  'growth',
  'jobs',
  'retention',
  'scores',
  'soak',
  'streams',
  'waits',
];

const directory = fileURLToPath(new URL('.', import.meta.url));
const [first = '--', ...rest] = process.argv.slice(2);
const isNamed = !first.startsWith('--');
if (isNamed && !NAMES.includes(first)) {
  console.error(`There is no benchmark ${first}; there are ${NAMES.join(', ')}.`);
  process.exit(2);
}
const run = (command: string, args: string[]) => spawnSync(command, args, { stdio: 'inherit' }).status ?? 1;
const installed = isNamed ? 0 : run('npm', ['install', '--prefix', directory, '--silent', '--no-audit', '--no-fund']);
const script = `${directory}${isNamed ? first : 'main'}.ts`;
process.exitCode = installed || run(process.execPath, [script, ...(isNamed ? rest : process.argv.slice(2))]);
