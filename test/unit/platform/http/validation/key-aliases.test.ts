import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { keyAliases } from '../../../../../src/platform/http/validation/key-aliases.ts';
import { createSessionSchema } from '../../../../../src/core/session.ts';

interface Tree {
  nodeName?: string | null | undefined;
  subNodes?: Tree[] | null | undefined;
  parentNode?: Tree | null | undefined;
}
const tree: z.ZodType<Tree> = z.looseObject({
  nodeName: z.string().nullish(),
  get subNodes() {
    return z.array(tree).nullish();
  },
  get parentNode() {
    return tree.nullish();
  },
});

describe('toSchema', () => {
  it('renames along the schema and never inside free-form objects', () => {
    const aliases = keyAliases(createSessionSchema);
    const sent = {
      session_id: 's',
      state: { session_id: 1, 'app:some_key': { mime_type: 2 } },
      events: [
        {
          invocation_id: 'i',
          custom_metadata: { invocation_id: 3 },
          actions: { state_delta: { state_delta: { x_y: 4 } }, artifact_delta: { a_b: 0 } },
          content: {
            parts: [
              { inline_data: { mime_type: 'text/plain', display_name: null } },
              { function_call: { name: 'f', args: { mime_type: 5 } } },
              { function_response: { name: 'f', response: { inline_data: 6 } } },
            ],
          },
          cache_metadata: { contents_count: 1, cache_name: 'c' },
          member_nobody_knows: { invocation_id: 7 },
        },
      ],
    };
    expect(aliases.toSchema(sent)).toEqual({
      sessionId: 's',
      state: { session_id: 1, 'app:some_key': { mime_type: 2 } },
      events: [
        {
          invocationId: 'i',
          customMetadata: { invocation_id: 3 },
          actions: { stateDelta: { state_delta: { x_y: 4 } }, artifactDelta: { a_b: 0 } },
          content: {
            parts: [
              { inlineData: { mimeType: 'text/plain', displayName: null } },
              { functionCall: { name: 'f', args: { mime_type: 5 } } },
              { functionResponse: { name: 'f', response: { inline_data: 6 } } },
            ],
          },
          cacheMetadata: { contents_count: 1, cache_name: 'c' },
          member_nobody_knows: { invocation_id: 7 },
        },
      ],
    });
    expect(sent.session_id).toBe('s');
  });

  it('gives the very same object back when nothing is to be renamed', () => {
    const sent = { sessionId: 's', events: [{ content: { parts: [{ text: 'x' }] } }], other_member: [{ a_b: 1 }] };
    expect(keyAliases(createSessionSchema).toSchema(sent)).toBe(sent);
  });

  it('prefers the aliases of the schema, then the first other one', () => {
    const aliases = keyAliases(createSessionSchema, { id: 'sessionId' });
    expect(aliases.toSchema({ session_id: 'snake', sessionId: 'camel' })).toEqual({
      session_id: 'snake',
      sessionId: 'camel',
    });
    expect(aliases.toSchema({ id: 'x' })).toEqual({ sessionId: 'x' });
    expect(aliases.toSchema({ id: 'x', session_id: 'y' })).toEqual({ id: 'x', sessionId: 'y' });
  });

  it('keeps the order of members and keys named like prototypes', () => {
    const sent: unknown = JSON.parse('{"b":1,"session_id":"s","__proto__":{"x":1},"constructor":{"prototype":2}}');
    const renamed = keyAliases(createSessionSchema).toSchema(sent);
    expect(JSON.stringify(renamed)).toBe('{"b":1,"sessionId":"s","__proto__":{"x":1},"constructor":{"prototype":2}}');
    expect(({} as { x?: number }).x).toBeUndefined();
  });

  it('knows schemas that contain themselves, records of objects, tuples and unions', () => {
    const sent = { node_name: 'a', sub_nodes: [{ parent_node: { node_name: 'b' } }] };
    expect(keyAliases(tree).toSchema(sent)).toEqual({ nodeName: 'a', subNodes: [{ parentNode: { nodeName: 'b' } }] });
    const inner = z.looseObject({ someName: z.string() });
    const mixed = z.looseObject({
      byKey: z.record(z.string(), inner),
      pairs: z.array(z.tuple([z.string(), inner])),
      either: z.union([z.string(), inner, z.array(inner)]),
      later: z.lazy(() => inner).optional(),
    });
    expect(
      keyAliases(mixed).toSchema({
        by_key: { some_name: { some_name: 'x' } },
        pairs: [['some_name', { some_name: 'y' }]],
        either: [{ some_name: 'z' }],
        later: { some_name: 'w' },
      }),
    ).toEqual({
      byKey: { some_name: { someName: 'x' } },
      pairs: [['some_name', { someName: 'y' }]],
      either: [{ someName: 'z' }],
      later: { someName: 'w' },
    });
  });

  it('leaves a snake_case schema and a body that is no object alone', () => {
    const harness = z.looseObject({ run_agent_request: z.looseObject({ user_id: z.string() }) });
    const sent = { runAgentRequest: { userId: 'u' } };
    expect(keyAliases(harness).toSchema(sent)).toBe(sent);
    for (const value of [null, 'x', 5, undefined]) expect(keyAliases(tree).toSchema(value)).toBe(value);
  });
});

describe('toSentPath', () => {
  const aliases = keyAliases(createSessionSchema, { id: 'sessionId' });

  it('shows what was sent by the key it was sent under, and what is missing by the name in the schema', () => {
    const body = { id: 1, events: [{ actions: { state_delta: [] } }] };
    expect(aliases.toSentPath(body, ['sessionId'])).toEqual(['id']);
    expect(aliases.toSentPath(body, ['events', 0, 'actions', 'stateDelta'])).toEqual([
      'events',
      0,
      'actions',
      'state_delta',
    ]);
    expect(aliases.toSentPath(body, ['events', 0, 'actions', 'artifactDelta'])).toEqual([
      'events',
      0,
      'actions',
      'artifactDelta',
    ]);
    expect(aliases.toSentPath(undefined, ['sessionId'])).toEqual(['sessionId']);
  });
});
