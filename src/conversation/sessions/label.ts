import { z } from 'zod';
import { nameError } from '../../core/session.ts';
import { textFormat } from '../../core/text-format.ts';

export const MAX_LABELS = 32;
/** Maximum size of a session's labels, in bytes of JSON. */
export const MAX_LABELS_BYTES = 8_192;
const NAME = '[A-Za-z0-9][A-Za-z0-9._/-]{0,62}';
/**
 * A label's value in a filter. Unlike a new value it may be empty or of an old format, which stored labels may have.
 */
const VALUE = '[^\\x00-\\x1f\\x7f]{0,256}';

const labelName = z
  .string()
  .regex(new RegExp(`^${NAME}$`), { abort: true })
  .refine((name) => nameError(name) === undefined, '`.` and `..` are not allowed between slashes');
const labelValue = textFormat(
  'label-value',
  (text) =>
    text.isWellFormed() && !/[\u2028\u2029]/.test(text)
      ? undefined
      : 'line separators and lone surrogates are not allowed',
  z.string().regex(/^[^\x00-\x1f\x7f-\x9f]{0,256}$/u, { abort: true }),
);

const labelMap = <Value extends z.ZodType>(value: Value) =>
  z
    .record(labelName, value)
    .meta({ maxProperties: MAX_LABELS })
    .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `at most ${MAX_LABELS} labels are allowed`);

export const labelChangesSchema = labelMap(labelValue.nullable()).describe(
  'Labels by name: a string sets one, null removes it, others stay.',
);

export const newLabelsSchema = labelMap(labelValue).refine(
  (labels) => Buffer.byteLength(JSON.stringify(labels)) <= MAX_LABELS_BYTES,
  `at most ${MAX_LABELS_BYTES} bytes are allowed`,
);

export const labelsSchema = z.record(z.string(), z.string()).describe('The labels, by name.');

/** A label condition in a query: `name=value`, or `name` for a label with any value. */
export const labelCondition = textFormat(
  'label-condition',
  (text) => (text.isWellFormed() ? undefined : 'lone surrogates are not allowed'),
  z.string().regex(new RegExp(`^${NAME}(?:=${VALUE})?$`, 'u'), { abort: true }),
);

/** A filter by labels: required `{name: value}` pairs, and names of labels that may have any value. */
export interface LabelChoice {
  values: Record<string, string>[];
  names: string[];
}

export function toLabelChoice(conditions: readonly string[]): LabelChoice {
  const choice: LabelChoice = { values: [], names: [] };
  for (const text of conditions) {
    const end = text.indexOf('=');
    if (end < 0) choice.names.push(text);
    else choice.values.push({ [text.slice(0, end)]: text.slice(end + 1) });
  }
  return choice;
}
