import { z } from 'zod';
import {
  contentSchema,
  jsonObject,
  partSchema,
  functionCallSchema,
  functionResponseSchema,
} from '../../../core/content.ts';
import { getChildren, unwrap } from '../../../core/zod-graph.ts';

/**
 * The form of an eval case that every version of ADK reads from a file: events are `{author, content}`, and no record
 * has a member that is not named here. Files of 2.13.0 have more, which 2.2.0 refuses.
 */

const rubrics = z
  .array(
    z.looseObject({
      rubricId: z.string(),
      rubricContent: z.looseObject({ textProperty: z.string().nullish() }),
      description: z.string().nullish(),
      type: z.string().nullish(),
    }),
  )
  .nullish();

const intermediateData = z.looseObject({
  invocationEvents: z.array(z.looseObject({ author: z.string(), content: contentSchema })).nullish(),
  toolUses: z.array(functionCallSchema).nullish(),
  toolResponses: z.array(functionResponseSchema).nullish(),
  intermediateResponses: z.array(z.tuple([z.string(), z.array(partSchema)])).nullish(),
});

const turn = z.looseObject({
  invocationId: z.string().nullish(),
  userContent: contentSchema,
  finalResponse: contentSchema.nullish(),
  intermediateData: intermediateData.nullish(),
  creationTimestamp: z.number().nullish(),
  rubrics,
  appDetails: z
    .looseObject({
      agentDetails: z
        .record(
          z.string(),
          z.looseObject({
            name: z.string(),
            instructions: z.string().nullish(),
            toolDeclarations: z.array(jsonObject).nullish(),
          }),
        )
        .nullish(),
    })
    .nullish(),
});

/** A case of a file, in this service's spelling; members that other versions add pass until {@link passOver}. */
export const fileCaseSchema = z.looseObject({
  evalId: z.string(),
  conversation: z.array(turn).nullish(),
  conversationScenario: z
    .looseObject({
      startingPrompt: z.string(),
      conversationPlan: z.string(),
      userPersona: z.union([z.string(), jsonObject]).nullish(),
    })
    .nullish(),
  sessionInput: z.looseObject({ appName: z.string(), userId: z.string(), state: jsonObject.nullish() }).nullish(),
  creationTimestamp: z.number().nullish(),
  rubrics,
  finalSessionState: jsonObject.nullish(),
});

/** What a pass over a case does at each record. */
export interface Pass {
  /** The name that a member gets. */
  rename: (name: string) => string;
  /** True for records whose unknown members stay. */
  isOpen: (schema: z.core.$ZodType) => boolean;
  /** True for members that are left out without a word, since reading puts them back. */
  isDefault: (name: string, value: unknown) => boolean;
  /** Where each member stood that was dropped. */
  dropped: string[];
}

/** A value without nulls and without members that its schema does not name; free-form objects stay as they are. */
export function passOver(schema: z.core.$ZodType, value: unknown, path: string, pass: Pass): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const plain = unwrap(schema);
  const { members, elements } = getChildren(plain);
  const below = (index: number) => elements[elements.length > 1 ? index : 0];
  if (Array.isArray(value)) {
    return value.map((each, index) => {
      const element = below(index);
      return element ? passOver(element, each, `${path}[${index}]`, pass) : each;
    });
  }
  const entries = Object.entries(value);
  if (Object.keys(members).length === 0) {
    const element = below(0);
    if (!element) return value;
    return Object.fromEntries(entries.map(([name, each]) => [name, passOver(element, each, `${path}.${name}`, pass)]));
  }
  // In the order of the schema, as ADK writes its files; what it does not name comes last.
  const order = Object.keys(members);
  const place = (name: string) => (order.includes(name) ? order.indexOf(name) : order.length);
  const kept = entries
    .toSorted(([one], [other]) => place(one) - place(other))
    .flatMap(([name, member]): [string, unknown][] => {
      const known = Object.hasOwn(members, name) ? members[name] : undefined;
      const at = `${path}.${pass.rename(name)}`;
      if (!known) {
        if (pass.isOpen(plain)) return [[name, member]];
        pass.dropped.push(at);
        return [];
      }
      if (member === null || pass.isDefault(name, member)) return [];
      return [[pass.rename(name), passOver(known, member, at, pass)]];
    });
  return Object.fromEntries(kept);
}
