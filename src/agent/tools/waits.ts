import type { JsonObject } from '../../core/content.ts';
import { type Tool, toParameters } from '../definition/tool.ts';

const waits = { needsConfirmation: false, effect: 'none', longRunning: true } as const;
const DAY = 86_400;
const amount = (maximum: number) => ({ type: 'number', minimum: 0, maximum });
const UNITS = { days: DAY, hours: 3_600, minutes: 60, seconds: 1 };
const schemaOf = (args: JsonObject) => (args['schema'] as JsonObject | undefined) ?? { type: 'object' };

export const promptPerson: Tool = {
  name: 'ask_person',
  description: 'Asks a person and waits for the answer, for as long as it takes.',
  parameters: toParameters(
    {
      question: { type: 'string', minLength: 1, maxLength: 2_000 },
      schema: { type: 'object', description: 'JSON Schema of the answer, an object. Any object if left out.' },
    },
    'question',
  ),
  ...waits,
  wait: (args) => ({ kind: 'question', hint: String(args['question']), schema: schemaOf(args) }),
  run: async () => undefined,
};

export const sleepFor: Tool = {
  name: 'sleep_for',
  description: 'Waits for some time, up to a year; you go on when it is over. Give at least one of the members.',
  parameters: {
    ...toParameters({ days: amount(366), hours: amount(8_784), minutes: amount(527_040), seconds: amount(31_622_400) }),
    minProperties: 1,
  },
  ...waits,
  wait: (args) => ({ kind: 'sleep', expiresAfter: toSeconds(args) }),
  run: async (args) => {
    if (toSeconds(args) > 366 * DAY) throw new Error('That is more than a year.');
  },
};

const toSeconds = (args: JsonObject) =>
  Object.entries(UNITS).reduce((sum, [name, seconds]) => sum + seconds * Number(args[name] ?? 0), 0);

export const sleepUntil: Tool = {
  name: 'sleep_until',
  description: 'Waits until a date and time, at most a year from now; you go on when it has come.',
  parameters: toParameters(
    {
      time: {
        type: 'string',
        pattern: String.raw`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?$`,
        description: 'YYYY-MM-DDThh:mm by the clock of `timeZone`.',
      },
      timeZone: {
        type: 'string',
        maxLength: 64,
        description: 'IANA time zone such as Europe/Berlin; UTC if left out.',
      },
    },
    'time',
  ),
  ...waits,
  wait: (args) => ({ kind: 'sleep', expiresAt: String(args['time']), timeZone: toZone(args) }),
  run: async (args) => {
    const [time, timeZone] = [String(args['time']), toZone(args)];
    if (Number.isNaN(Date.parse(`${time}Z`))) throw new Error(`\`${time}\` is no date and time.`);
    try {
      Intl.DateTimeFormat('en', { timeZone });
    } catch {
      throw new Error(`\`${timeZone}\` is no known time zone. Use an IANA name such as Europe/Berlin.`);
    }
  },
};

const toZone = ({ timeZone }: JsonObject) => (typeof timeZone === 'string' ? timeZone : 'UTC');

export const waitForSignal: Tool = {
  name: 'wait_for_signal',
  description: 'Waits until another system sends a signal of a name to this conversation, such as `parcel_arrived`.',
  parameters: toParameters(
    {
      name: { type: 'string', pattern: '^[A-Za-z0-9_.-]{1,64}$' },
      schema: { type: 'object', description: 'JSON Schema of what it says, an object. Any object if left out.' },
      timeoutSeconds: { ...amount(31_622_400), description: 'You go on without it after so many. Never if left out.' },
    },
    'name',
  ),
  ...waits,
  wait: (args) => ({
    kind: 'signal',
    signal: String(args['name']),
    schema: schemaOf(args),
    ...(args['timeoutSeconds'] !== undefined && { expiresAfter: Number(args['timeoutSeconds']) }),
  }),
  run: async () => undefined,
};
