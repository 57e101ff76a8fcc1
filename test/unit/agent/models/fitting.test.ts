import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ModelAnswer } from '../../../../src/agent/definition/model.ts';
import { createModel } from '../../../../src/agent/models/create-model.ts';
import {
  decodeArguments,
  encodeArguments,
  type FittedSchema,
  fitSchema,
} from '../../../../src/agent/models/fit-schema.ts';
import { anthropic } from '../../../../src/agent/providers/anthropic.ts';
import { google } from '../../../../src/agent/providers/google.ts';
import type { ProviderName } from '../../../../src/agent/providers/index.ts';
import { arbitraryCall, arbitraryRequest } from '../../../support/arbitrary-requests.ts';
import { startFakeProvider } from '../../../support/fake-provider.ts';
import { FACTS, type Rules } from '../../../support/provider-checks.ts';

/** 20,000 by hand: `FITTING_RUNS=20000 npx vitest run test/unit/agent/models/fitting.test.ts`. */
const RUNS = Number(process.env['FITTING_RUNS'] ?? 150);
const SEED = Number(process.env['FITTING_SEED'] ?? 44);

test.each<[ProviderName, Rules, string]>([
  ['openai', 'openai', 'gpt-5-mini'],
  ['anthropic', 'anthropic', 'claude-sonnet-4-6'],
  ['anthropic', 'anthropic', 'claude-3-haiku-20240307'],
  ['google', 'google', 'gemini-3-pro'],
  ['google', 'google', 'gemini-2.5-flash'],
  ['openai-compatible', 'openai-compatible', 'any'],
  ['openai-compatible', 'mistral-model', 'mistral-small'],
  ['openai-compatible', 'text-only', 'any'],
])(
  '%s by the rules of %s (%s) refuses no conversation and no tools',
  async (provider, rules, modelName) => {
    const server = await startFakeProvider(provider, [{ text: ['ok'] }], { rules, mayRefuse: true });
    const model = createModel({ provider, apiKey: 'any', baseUrl: server.baseUrl, maxRetries: 0 });
    const { signal } = new AbortController();
    const ask = async (request: Parameters<typeof model.generate>[0]) => {
      const stream = model.generate(request);
      for (;;) {
        const next = await stream.next();
        if (next.done) return next.value;
      }
    };
    try {
      const property = fc.asyncProperty(arbitraryRequest(rules !== 'text-only'), async (request) => {
        server.requests.length = 0;
        server.refused.length = 0;
        const answer = await ask({ ...request, modelName, signal }).catch((error: unknown) => error as ModelAnswer);
        expect(JSON.stringify(server.refused)).toBe('[]');
        expect(answer).not.toBeInstanceOf(Error);
        // Some models answer in a form by calling a tool, which this server does not know.
        if (!request.outputSchema) expect(answer.content?.parts).toEqual([{ text: 'ok' }]);
      });
      await fc.assert(property, { numRuns: RUNS, seed: SEED });
    } finally {
      await server.close();
    }
  },
  3_600_000,
);

/** All names of members in a value. */
const namesIn = (value: unknown): string[] =>
  typeof value === 'object' && value !== null
    ? [...(Array.isArray(value) ? [] : Object.keys(value)), ...Object.values(value).flatMap(namesIn)]
    : [];

type Code = Exclude<FittedSchema['code'], undefined>;

/** True if the provider gets some argument of another name by this one. */
function isNewName(code: Code | undefined, name: string, seen = new Set<Code>()): boolean {
  if (!code || seen.has(code)) return false;
  seen.add(code);
  const own = code.members.get(name);
  const inner = [...[...code.members.values()].map((member) => member.code), code.items, code.others, ...code.also];
  return (own !== undefined && own.name !== name) || inner.some((each) => isNewName(each, name, seen));
}

test.each([
  ['google', google.facts(undefined, '')],
  ['anthropic', anthropic.facts(undefined, '')],
])('%s: arguments come back as they went', (_, facts) => {
  const property = fc.property(arbitraryCall, ([parameters, args]) => {
    const fitted = fitSchema(parameters, facts);
    if (typeof fitted === 'string') return;
    const plain = JSON.parse(JSON.stringify(args)) as typeof args;
    // An argument that the schema does not know cannot be told from one that is sent by its name.
    if (namesIn(plain).some((name) => isNewName(fitted.code, name))) return;
    const told = encodeArguments(plain, fitted.code);
    expect(JSON.stringify(decodeArguments(told, fitted.code))).toBe(JSON.stringify(plain));
  });
  fc.assert(property, { numRuns: RUNS * 5, seed: SEED });
});

test('the rules that the fakes check are those of refusals.json, which has their sources', () => {
  const source = readFileSync('test/support/provider-checks.ts', 'utf8');
  const used = [...source.matchAll(/'((?:oc|or|an|go|mi|de|ar|vl|ll|ol|lm)-[a-z0-9-]+)'/g)].map(([, id = '']) => id);
  expect(used.length).toBeGreaterThan(80);
  expect(used.filter((id) => !FACTS.has(id))).toEqual([]);
});
