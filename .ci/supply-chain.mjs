import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { writeWhole } from './whole.mjs';

/**
 * Looks at what the service is made of beside its own code: writes the bill of materials (CycloneDX), refuses licences
 * that are not on the list, asks the registry for known holes and for signatures, where it answers, and with
 * `--digests FILE` refuses images of containers whose bytes that file does not name. The console is looked at by its
 * own lock: its packages are in the files that it is built into.
 */

const run = promisify(execFile);

/** Licences under which a production package may be taken: they ask for a notice at most. */
const ALLOWED = new Set([
  '0BSD',
  'AFL-2.1',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  // Fonts of the development UI, which are served as they are.
  'OFL-1.1',
  'PostgreSQL',
  'Python-2.0',
  'Unlicense',
]);
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** npm asks three times, with a minute between the last two: too long for a registry that has no such service. */
const ASK_BRIEFLY = ['--fetch-retries', '1', '--fetch-retry-mintimeout', '1000', '--fetch-timeout', '20000'];
/** What npm says where the registry has no such service, or cannot be reached. */
const NO_ANSWER = /endpoint returned an error|ENOTFOUND|ECONN|ETIMEDOUT|EAI_AGAIN|network|40[45] /;

/** True for one allowed licence, or a choice that has one. */
const isAllowed = (text) =>
  text
    .replaceAll(/[()]/g, '')
    .split(' OR ')
    .some((each) => ALLOWED.has(each.trim()));

/** Old packages have `licenses` in their manifest, which no lock repeats. */
const oldLicencesOf = (name) => JSON.parse(readFileSync(join('node_modules', name, 'package.json'), 'utf8')).licenses;

const licenceOf = ({ name, licenses = oldLicencesOf(name) ?? [] }) =>
  licenses.map(({ license, expression, type }) => license?.id ?? expression ?? license?.name ?? type).join(' OR ');

async function npm(...args) {
  const done = await run('npm', args, { maxBuffer: MAX_OUTPUT_BYTES }).catch((error) => error);
  return { code: Number(done.code ?? 0), text: `${done.stdout ?? ''}${done.stderr ?? ''}` };
}

/** Fails for what the registry reports; where it does not answer, says that nothing was looked up. */
async function askRegistry(what, ...args) {
  const { code, text } = await npm(...args, ...ASK_BRIEFLY);
  if (code !== 0 && NO_ANSWER.test(text)) {
    console.log(`${what}: skipped, the registry does not answer such a question here`);
    return true;
  }
  console.log(`${what}: ${code === 0 ? 'nothing found' : text}`);
  return code === 0;
}

/** Every image that is built on or started, as it is written. */
const imagesIn = (file) =>
  [...readFileSync(file, 'utf8').matchAll(/^(?:FROM|\s+image:)\s+(\S+)/gm)]
    .map(([, image]) => image)
    // Our own, which compose builds.
    .filter((image) => !image.startsWith('agent-runtime'));

/**
 * True where every image has a digest, in its own name or in a line `<image>@sha256:<64 digits>` of the file, which
 * `docker buildx imagetools inspect <image>` shows. Without a file nothing is compared: only a registry knows digests.
 */
function haveDigests(file) {
  const images = new Set(['Dockerfile', 'docker-compose.yml', 'template/docker-compose.yml'].flatMap(imagesIn));
  if (file === undefined) {
    console.log(`digests of images: not compared, ${images.size} images are named by tag; --digests FILE names them`);
    return true;
  }
  const lines = readFileSync(file, 'utf8').split('\n');
  const isPinned = (name) => /@sha256:[\da-f]{64}$/.test(name);
  const lacking = [...images].filter(
    (image) => !isPinned(image) && !lines.some((line) => line.startsWith(`${image}@`) && isPinned(line.trim())),
  );
  for (const image of lacking) console.error(`image without a digest: ${image}`);
  if (lacking.length === 0) console.log(`digests of images: all ${images.size} are named`);
  return lacking.length === 0;
}

const { values } = parseArgs({
  options: { sbom: { type: 'string', default: 'sbom.cdx.json' }, digests: { type: 'string' } },
});
const isPinned = haveDigests(values.digests);
const isForDevelopment = ({ properties = [] }) => properties.some(({ name }) => name === 'cdx:npm:package:development');
/** The bill of materials of a project. `--omit dev` leaves out what a package for development needs too. */
async function listParts(...place) {
  const bill = JSON.parse((await npm('sbom', '--sbom-format', 'cyclonedx', ...place)).text);
  const components = bill.components.filter((component) => !isForDevelopment(component));
  const refs = new Set([bill.metadata.component, ...components].map((component) => component['bom-ref']));
  return { ...bill, components, dependencies: bill.dependencies.filter(({ ref }) => refs.has(ref)) };
}
const whole = mkdtempSync(join(tmpdir(), 'agent-runtime-whole-'));
writeWhole('.', whole);
copyFileSync('package-lock.json', join(whole, 'package-lock.json'));
/** Locks say what both are made of: the console is not installed where it is only served, nor is every optional peer. */
const OF_SERVICE = ['--package-lock-only', '--prefix', whole];
const OF_CONSOLE = ['--package-lock-only', '--prefix', 'console'];
const [service, ofConsole] = [await listParts(...OF_SERVICE), await listParts(...OF_CONSOLE)];
/** What both have counts once. */
const joined = (member, id) => [
  ...new Map([service, ofConsole].flatMap((each) => each[member]).map((each) => [each[id], each])).values(),
];
const components = joined('components', 'bom-ref');
const itself = ofConsole.metadata.component['bom-ref'];
const dependencies = joined('dependencies', 'ref').filter(({ ref }) => ref !== itself);
writeFileSync(values.sbom, JSON.stringify({ ...service, components, dependencies }, null, 2));
console.log(
  `bill of materials: ${components.length} packages in ${values.sbom}, ${ofConsole.components.length} of the console`,
);
const refused = components.filter((component) => !isAllowed(licenceOf(component)));
for (const each of refused) console.error(`licence not allowed: ${each.name}@${each.version} ${licenceOf(each)}`);
if (refused.length === 0) console.log('licences: all on the list');
const AUDIT = ['audit', '--omit', 'dev', '--audit-level', 'high'];
const asked = await Promise.all([
  askRegistry('known holes', ...AUDIT, ...OF_SERVICE),
  askRegistry('known holes of the console', ...AUDIT, ...OF_CONSOLE),
  askRegistry('signatures', 'audit', 'signatures', '--omit', 'dev'),
]);
rmSync(whole, { recursive: true });
process.exitCode = refused.length === 0 && asked.every(Boolean) && isPinned ? 0 : 1;
