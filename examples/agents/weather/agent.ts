import { defineAgent, defineTool } from 'agent-runtime';

/** Stands for the weather service of your own that a tool would ask. */
const SKIES = new Map([
  ['Berlin', { sky: 'cloudy', celsius: 14 }],
  ['Lima', { sky: 'foggy', celsius: 18 }],
  ['Nairobi', { sky: 'clear', celsius: 24 }],
]);
const cities = [...SKIES.keys()];

const forecast = defineTool({
  name: 'forecast',
  description: 'Tells the weather of tomorrow in a city.',
  // JSON Schema: the model sees it, and arguments that do not fit it never reach `run`.
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', enum: cities } },
    required: ['city'],
    additionalProperties: false,
  },
  run: async ({ city }) => ({ city, ...SKIES.get(String(city)) }),
});

const setHome = defineTool({
  name: 'set_home',
  description: 'Keeps the city in which the user lives.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', enum: cities } },
    required: ['city'],
    additionalProperties: false,
  },
  // What a tool writes here is stored with its answer; `user:` keeps it for all sessions of the user.
  run: async ({ city }, { actions }) => {
    actions.stateDelta = { 'user:home': city };
    return { home: city };
  },
});

/** The application `weather`: its name is that of this directory. */
export const agent = defineAgent({
  description: 'Tells the weather.',
  instruction: 'You tell the weather. The user lives in: {user:home?}. Where a city is unknown, say which you know.',
  tools: [forecast, setHome, 'current_time'],
  maxLlmCalls: 20,
});
