import { describe, expect, it } from 'vitest';
import { parseScalar } from '../../../../../src/platform/http/validation/parameters.ts';

describe('parseScalar', () => {
  it.each<['integer' | 'number' | 'boolean' | 'string', string, unknown]>([
    ['integer', ' +1_000.00 ', 1000],
    ['integer', '-0007', -7],
    ['number', '.5', 0.5],
    ['number', '5.', 5],
    ['number', ' 1_0.5e-1 ', 1.05],
    ['boolean', 'On', true],
    ['boolean', 'n', false],
    ['string', ' x ', ' x '],
  ])('reads %s %j as %j', (type, text, value) => {
    expect(parseScalar(type, text)).toEqual({ value });
  });

  it.each<['integer' | 'number' | 'boolean', string, string]>([
    ['integer', '1_0.5', 'int_parsing'],
    ['integer', '1_', 'int_parsing'],
    ['integer', '1 2', 'int_parsing'],
    ['integer', '1'.repeat(4301), 'int_parsing_size'],
    ['number', 'nan', 'float_parsing'],
    ['number', 'Infinity', 'float_parsing'],
    ['number', '0x10', 'float_parsing'],
    ['number', '.', 'float_parsing'],
    ['boolean', ' true', 'bool_parsing'],
    ['boolean', '2', 'bool_parsing'],
  ])('refuses %s %s: %s', (type, text, rule) => {
    expect(parseScalar(type, text)).toEqual({ refusal: rule });
  });

  it('takes time in proportion to the text: quadratic would not end before the test’s own limit', () => {
    const hostile = [
      `${'1'.repeat(1_000_000)}x`,
      `${'1_'.repeat(500_000)}x`,
      `${' '.repeat(1_000_000)}x`,
      `1.${'0'.repeat(1_000_000)}x`,
    ];
    for (const text of hostile) {
      expect(parseScalar('integer', text)).toHaveProperty('refusal');
      expect(parseScalar('number', text)).toHaveProperty('refusal');
    }
  });
});
