import { processEnvironment } from '../config/environment.ts';
import { examine } from './doctor/examine.ts';
import { style } from './output.ts';

const MARKS = { ok: ['green', '✓'], fault: ['red', '✗'], skipped: ['gray', '–'] } as const;

/** Prints what is wrong with this machine and these settings. @returns the exit code: 1 where there is a fault */
export async function doctor({ json }: { json?: boolean }): Promise<number> {
  const findings = await examine(processEnvironment());
  if (json) console.log(JSON.stringify(findings));
  else {
    for (const { check, status, detail } of findings) {
      const [colour, mark] = MARKS[status];
      console.log(`${style(colour, mark)} ${check.padEnd(9)}  ${detail}`);
    }
  }
  return findings.some(({ status }) => status === 'fault') ? 1 : 0;
}
