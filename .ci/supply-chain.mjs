import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { parseArgs, promisify } from 'node:util';

/**
 * Looks at what the service is made of beside its own code: writes the bill of materials (CycloneDX), refuses licences
 * that are not on the list, and asks the registry for known holes and for signatures, where it answers.
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
/** What npm says where the registry has no such service, or cannot be reached. */
const NO_ANSWER = /endpoint returned an error|ENOTFOUND|ECONN|ETIMEDOUT|EAI_AGAIN|network|40[45] /;

/** True for one allowed licence, or a choice that has one. */
const isAllowed = (text) =>
  text
    .replaceAll(/[()]/g, '')
    .split(' OR ')
    .some((each) => ALLOWED.has(each.trim()));

const licenceOf = ({ licenses = [] }) =>
  licenses.map(({ license, expression }) => license?.id ?? expression ?? license?.name ?? 'unknown').join(' OR ');

async function npm(...args) {
  const done = await run('npm', args, { maxBuffer: MAX_OUTPUT_BYTES }).catch((error) => error);
  return { code: Number(done.code ?? 0), text: `${done.stdout ?? ''}${done.stderr ?? ''}` };
}

/** Fails for what the registry reports; where it does not answer, says that nothing was looked up. */
async function askRegistry(what, ...args) {
  const { code, text } = await npm(...args);
  if (code !== 0 && NO_ANSWER.test(text)) {
    console.log(`${what}: skipped, the registry does not answer such a question here`);
    return true;
  }
  console.log(`${what}: ${code === 0 ? 'nothing found' : text}`);
  return code === 0;
}

const { values } = parseArgs({ options: { sbom: { type: 'string', default: 'sbom.cdx.json' } } });
const { text } = await npm('sbom', '--sbom-format', 'cyclonedx', '--omit', 'dev');
const { components } = JSON.parse(text);
writeFileSync(values.sbom, text);
console.log(`bill of materials: ${components.length} packages in ${values.sbom}`);
const refused = components.filter((component) => !isAllowed(licenceOf(component)));
for (const each of refused) console.error(`licence not allowed: ${each.name}@${each.version} ${licenceOf(each)}`);
if (refused.length === 0) console.log('licences: all on the list');
const isAudited = await askRegistry('known holes', 'audit', '--omit', 'dev', '--audit-level', 'high');
const isSigned = await askRegistry('signatures', 'audit', 'signatures', '--omit', 'dev');
process.exitCode = refused.length === 0 && isAudited && isSigned ? 0 : 1;
