import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The protocol's own conformance suite, `@modelcontextprotocol/conformance`. */

const SUITE = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

/** The frozen requirement sets that both sides are held to. */
export const REVISIONS = ['2025-11-25', '2026-07-28'] as const;

/** The scenarios that cannot apply to this product, each with its reason; one that passes after all fails the run. */
export const exceptionsFile = (revision: string): string =>
  fileURLToPath(new URL(`exceptions-${revision}.yaml`, import.meta.url));

/** Runs one command of the suite. @returns its exit code, and all that it said */
export async function runSuite(
  args: string[],
  environment: Record<string, string> = {},
): Promise<{ code: number; output: string }> {
  const results = await mkdtemp(join(tmpdir(), 'agent-runtime-conformance-'));
  const out = args[0] === 'list' ? [] : ['-o', results];
  try {
    return await new Promise((resolve) => {
      const options = { env: { ...process.env, ...environment }, maxBuffer: MAX_OUTPUT_BYTES, cwd: results };
      execFile(process.execPath, [SUITE, ...args, ...out], options, (error, stdout, stderr) =>
        resolve({ code: error ? Number(error.code ?? 1) : 0, output: stdout + stderr }),
      );
    });
  } finally {
    await rm(results, { recursive: true, force: true });
  }
}
