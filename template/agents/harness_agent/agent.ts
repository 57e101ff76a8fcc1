import { defineAgent, defineTool, z } from 'agent-runtime';

/** Stands for the weather service that a tool would ask. */
const SKIES = { Berlin: { sky: 'cloudy', celsius: 14 }, Lima: { sky: 'foggy', celsius: 18 } };

const forecast = defineTool({
  name: 'forecast',
  description: 'Tells the weather of tomorrow in a city.',
  // The model sees this as JSON Schema, and `run` gets the arguments with these types.
  parameters: z.object({ city: z.enum(['Berlin', 'Lima']) }),
  run: async ({ city }) => ({ city, ...SKIES[city] }),
});

export const agent = defineAgent({
  description: 'Tells the weather.',
  instruction: 'You tell the weather. Where a city is unknown, say which you know.',
  tools: [forecast, 'current_time'],
});
