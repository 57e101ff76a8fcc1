import { expect, test } from 'vitest';
import { SingleFlight } from '../../../../src/platform/work/single-flight.ts';

/** Work whose runs end when they are told to. */
function controlled() {
  const ends: ((error?: Error) => void)[] = [];
  const work = () => {
    const run = ends.length + 1;
    return new Promise<number>((resolve, reject) => ends.push((error) => (error ? reject(error) : resolve(run))));
  };
  return { ends, work };
}

test('callers of one key share a run, also its failure; the next caller starts another one', async () => {
  const { ends, work } = controlled();
  const flight = new SingleFlight<number>();
  const calls = [flight.run('a', work), flight.run('a', work)];
  expect(ends).toHaveLength(1);
  void flight.run('b', work);
  expect(ends).toHaveLength(2);
  ends[0]?.(new Error('away'));
  expect((await Promise.allSettled(calls)).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const again = flight.run('a', work);
  ends[2]?.();
  expect(await again).toBe(3);
});
