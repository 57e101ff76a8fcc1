import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERROR_CODES, isRefusal, toErrorCode } from '../../../src/core/error-codes.ts';
import { ERROR_STATUSES } from '../../../src/platform/http/operation/request-errors.ts';

const document = JSON.parse(
  readFileSync(new URL('../../../src/platform/http/openapi/openapi.json', import.meta.url), 'utf8'),
) as {
  components: { schemas: Record<string, { properties: Record<string, unknown> }> };
  paths: Record<string, Record<string, { responses?: object }>>;
};
const { Invocation, Event } = document.components.schemas;

// That the source uses no other code is the type's: `AgentError` takes an `ErrorCode`.
test.each(Object.entries(ERROR_CODES))('%s has a sentence, and the document shows both', (code, { meaning, retry }) => {
  expect(code).toMatch(/^[a-z]+(?:_[a-z]+)*$/);
  expect(meaning).toMatch(/^[A-Z].{15,}\.$/);
  expect(JSON.stringify(Invocation?.properties['error'])).toContain(`- \`${code}\` (retry: ${retry}): ${meaning}`);
  expect(JSON.stringify(Event?.properties['errorCode'])).toMatch(new RegExp(` ${code}, `));
});

test('the codes of requests that were refused', () => {
  const codes = ['model_rejected', 'model_not_found', 'unknown_tool', 'unknown_skill', 'unsupported_override'];
  expect(Object.keys(ERROR_CODES).filter(isRefusal).toSorted()).toEqual(codes.toSorted());
  expect([isRefusal(null), isRefusal(undefined), isRefusal('toString')]).toEqual([false, false, false]);
});

test('every status of an error in the document is described', () => {
  const statuses = Object.values(document.paths)
    .flatMap((item) => Object.values(item))
    .flatMap(({ responses }) => Object.keys(responses ?? {}))
    .filter((status) => status >= '400' && status !== 'default');
  expect([...new Set(statuses)].filter((status) => !(status in ERROR_STATUSES))).toEqual([]);
});

test('a code that is none of these is an internal failure', () => {
  expect([toErrorCode('time_limit'), toErrorCode('SAFETY'), toErrorCode('toString')]).toEqual([
    'time_limit',
    'internal',
    'internal',
  ]);
});
