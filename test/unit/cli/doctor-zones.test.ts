import { expect, test } from 'vitest';
import { describeZones } from '../../../src/cli/doctor/check-database.ts';
import { offsetAt } from '../../../src/core/time-zones.ts';

const [winter, summer] = [Date.UTC(2027, 0, 15) / 1000, Date.UTC(2027, 6, 15) / 1000];
const asNode = (zone: string, at: number) => ({ zone, at, offset: offsetAt(at * 1000, zone) / 1000 });

test('doctor names the zones whose clocks the database has otherwise, or not at all, and since when', () => {
  const same = [asNode('Europe/Berlin', winter), asNode('Europe/Berlin', summer), asNode('Asia/Tokyo', winter)];
  expect(describeZones(same)).toBeUndefined();
  // As PostgreSQL knows a zone whose law has changed since: one hour off in winter only.
  const older = {
    ...asNode('America/Vancouver', summer),
    offset: offsetAt(summer * 1000, 'America/Vancouver') / 1000 - 3600,
  };
  expect(describeZones([...same, asNode('America/Vancouver', winter), older])).toBe(
    `The clocks of America/Vancouver in the database differ from those of this Node (${process.versions.tz}), first on ` +
      "2027-07-15. Schedules and sleep_until go by Node's, SQL of your own by the database's: update the older one.",
  );
  const absent = { zone: 'Asia/Almaty', at: winter, offset: null };
  expect(describeZones([...same, absent])).toMatch(
    /^The clocks of Asia\/Almaty in the database differ .* on 2027-01-15/,
  );
});
