import { expect, test, vi } from 'vitest';
import { measureQueues, type StateContext } from '../../../src/features/service/service-state.ts';
import type { Metrics } from '../../../src/platform/metrics.ts';
import { MINUTE } from '../../support/patience.ts';

test('while the database is away the last values are told for a minute, and then none', async () => {
  let isAway = false;
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  const query = vi.fn<() => Promise<object>>(async () => {
    if (isAway) throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    return { rows: [{ replicas: [], stranded: 2, queues: [{ name: 'tasks', waiting: 3, oldestSeconds: null }] }] };
  });
  const read = new Map<string, () => unknown>();
  const observe = (name: string, values: () => unknown) => void read.set(name, values);
  const end = new AbortController();
  const warn = vi.fn<() => void>();
  const measuring = measureQueues({
    database: { reads: { $client: { query } } },
    metrics: { observe } as unknown as Metrics,
    log: { warn },
    draining: end.signal,
    sweepIntervalMs: 1,
  } as unknown as StateContext);
  const values = () => [...read.values()].map((each) => each());
  await vi.waitUntil(() => query.mock.calls.length > 1, MINUTE);
  const told = [[[3, { queue: 'tasks' }]], [[0, { queue: 'tasks' }]], [[2, {}]]];
  expect(values()).toEqual(told);
  isAway = true;
  await vi.waitUntil(async () => query.mock.settledResults.at(-1)?.type === 'rejected', MINUTE);
  now = 59_000;
  expect(values()).toEqual(told);
  now = 61_000;
  expect(values()).toEqual([[], [], []]);
  // A database that is away is told by what fails for it.
  expect(warn).not.toHaveBeenCalled();
  end.abort();
  await measuring;
  clock.mockRestore();
});
