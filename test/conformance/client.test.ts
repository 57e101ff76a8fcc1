import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { exceptionsFile, REVISIONS, runSuite } from './suite.ts';
import { MINUTE } from '../support/patience.ts';

/** The suite starts all clients at once; how long that takes says how busy the machine is. */
const PATIENCE_MS = 10 * MINUTE;

test.each(REVISIONS)(
  'an agent with the suite’s server meets the requirements of %s',
  async (revision) => {
    const command = `"${process.execPath}" "${fileURLToPath(new URL('client.ts', import.meta.url))}"`;
    const args = ['client', '--command', command, '--requirements', revision, '--timeout', String(PATIENCE_MS)];
    const { code, output } = await runSuite([...args, '--expected-failures', exceptionsFile(revision)]);
    if (code !== 0) console.log(output);
    expect(code).toBe(0);
    expect(output).toContain('✓ tools_call');
  },
  PATIENCE_MS,
);
