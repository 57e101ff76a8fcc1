import { expect, test } from 'vitest';
import { toolCalls } from '../../../../src/platform/db/schema/schema.ts';

test.each([
  ['2026-11-29 06:28:06.123456+00', 1795933686.123456],
  ['2026-11-29 11:58:06.1+05:30', 1795933686.1],
  ['2026-11-29 06:28:06+00', 1795933686],
  ['1969-12-31 23:59:59.25+00', -0.75],
  ['0050-01-01 00:00:00+00', -60589296000],
])('the time %s is read as %d Unix seconds', (printed, seconds) => {
  expect(toolCalls.createTime.mapFromDriverValue(printed)).toBe(seconds);
});
