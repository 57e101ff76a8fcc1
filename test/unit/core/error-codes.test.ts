import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERROR_CODES, toErrorCode } from '../../../src/core/error-codes.ts';

const document = JSON.parse(
  readFileSync(new URL('../../../src/platform/http/openapi/openapi.json', import.meta.url), 'utf8'),
) as { components: { schemas: Record<string, { properties: Record<string, unknown> }> } };
const { Invocation, Event } = document.components.schemas;

// That the source uses no other code is the type's: `AgentError` takes an `ErrorCode`.
test.each(Object.entries(ERROR_CODES))('%s has a sentence, and the document shows both', (code, sentence) => {
  expect(code).toMatch(/^[a-z]+(?:_[a-z]+)*$/);
  expect(sentence).toMatch(/^[A-Z].{15,}\.$/);
  expect(JSON.stringify(Invocation?.properties['error'])).toContain(`- \`${code}\`: ${sentence}`);
  expect(JSON.stringify(Event?.properties['errorCode'])).toMatch(new RegExp(` ${code}, `));
});

test('a code that is none of these is an internal failure', () => {
  expect([toErrorCode('time_limit'), toErrorCode('SAFETY'), toErrorCode('toString')]).toEqual([
    'time_limit',
    'internal',
    'internal',
  ]);
});
