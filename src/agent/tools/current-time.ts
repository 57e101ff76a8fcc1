import type { Tool } from '../definition/tool.ts';

/** Tells the time in an IANA time zone [UTC]; `now` is the clock. */
export const currentTime = (now: () => Date = () => new Date()): Tool => ({
  name: 'current_time',
  description: 'Tells the current date and time. Use it whenever the answer depends on what time or day it is now.',
  parameters: {
    type: 'object',
    properties: {
      timeZone: {
        type: 'string',
        maxLength: 64,
        description: 'IANA time zone such as Europe/Berlin; UTC if left out.',
      },
    },
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args) {
    const timeZone = typeof args['timeZone'] === 'string' ? args['timeZone'] : 'UTC';
    return inZone(now(), timeZone);
  },
});

function inZone(time: Date, timeZone: string) {
  const format = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat('sv-SE', { timeZone, ...options });
  try {
    return {
      time: format({ dateStyle: 'short', timeStyle: 'medium' }).format(time),
      weekday: new Intl.DateTimeFormat('en-US', { timeZone, weekday: 'long' }).format(time),
      timeZone,
      utc: time.toISOString(),
    };
  } catch {
    throw new Error(`\`${timeZone}\` is not a known time zone. Use an IANA name such as Europe/Berlin.`);
  }
}
