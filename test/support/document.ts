interface Document {
  paths: object;
  components: { responses?: Record<string, object>; parameters?: Record<string, object> };
}

/** A document whose operations have their answers and parameters written out: only schemas are still referred to. */
export function writtenOut<Some extends object>(document: Some): Some {
  const { components } = document as unknown as Document;
  const named = { responses: components.responses ?? {}, parameters: components.parameters ?? {} };
  const text = JSON.stringify(document, (_key, value: { $ref?: unknown } | null) => {
    const [, kind, name = ''] = /^#\/components\/(responses|parameters)\/(\w+)$/.exec(String(value?.$ref)) ?? [];
    return kind === undefined ? value : named[kind as keyof typeof named][name];
  });
  return JSON.parse(text) as Some;
}
