#!/usr/bin/env node
// No import above: an older Node would end at the first name that it does not have, before it runs a line of this file.
const OLDEST = [22, 19] as const;
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
  console.error(
    `This is Node ${process.versions.node}; the agent runtime needs ${OLDEST.join('.')} or newer. A clone has one in its node_modules/.bin.`,
  );
  process.exitCode = 2;
} else {
  const { loadFaster } = await import('./process/module-loading.ts');
  loadFaster();
  const { runProgram } = await import('./cli/program.ts');
  process.exitCode = await runProgram(process.argv.slice(2));
}
