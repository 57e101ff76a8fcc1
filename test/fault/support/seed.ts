/** True in the long set: many kills, ten minutes of history, every crash point of the migrations. */
export const isLong = process.env['FAULT_LONG'] === '1';

/** `short` in CI, `long` with FAULT_LONG=1. */
export const either = (short: number, long: number): number => (isLong ? long : short);

/** Random numbers that FAULT_SEED decides. */
export interface Random {
  /** From 0 up to 1. */
  next: () => number;
  /** A whole number from `least` up to `most`, both included. */
  whole: (least: number, most: number) => number;
  pick: <T>(values: readonly T[]) => T;
}

/** Numbers of one purpose: the same for every run with this seed, whatever other purposes draw (mulberry32). */
export function random(purpose: string): Random {
  let state = Number(process.env['FAULT_SEED'] ?? 1);
  for (const character of purpose) state = Math.imul(state ^ (character.codePointAt(0) ?? 0), 0x01000193);
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    whole: (least, most) => least + Math.floor(next() * (most - least + 1)),
    pick: (values) => {
      const picked = values[Math.floor(next() * values.length)];
      if (picked === undefined) throw new RangeError('nothing to pick from');
      return picked;
    },
  };
}
