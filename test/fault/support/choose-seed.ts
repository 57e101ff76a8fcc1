import { randomInt } from 'node:crypto';

/** Says which seed decides the random numbers of a run, so that FAULT_SEED can repeat it. */
export default function setup(): void {
  const seed = (process.env['FAULT_SEED'] ??= String(randomInt(2 ** 31)));
  console.log(`fault tests: FAULT_SEED=${seed}${process.env['FAULT_LONG'] === '1' ? ' FAULT_LONG=1' : ''}`);
}
