import { defineAgent, defineTool, guardrail, z } from 'agent-runtime';

const PRICES: Record<string, number> = { tea: 4, cups: 9 };

const price = defineTool({
  name: 'price',
  description: 'Tells the price of an item.',
  effect: 'none',
  limits: { timeoutMs: 2_000, retries: 2 },
  parameters: z.object({ item: z.string() }),
  run: async ({ item }) => ({ item, price: PRICES[item] ?? null }),
});

const order = defineTool({
  name: 'order',
  description: 'Orders items for the customer.',
  needsConfirmation: true, // a person says yes first
  parameters: z.object({ item: z.string(), count: z.int().min(1) }),
  run: async ({ item, count }, { actions }) => {
    actions.stateDelta = { 'user:last_order': { item, count } };
    return { ordered: count };
  },
});

export const agent = defineAgent({
  description: 'Sells tea.',
  instruction: 'You sell tea. Customers are called {user:name?}.',
  model: { name: 'gpt-5-mini', fallbacks: [{ name: 'gpt-5-nano' }], firstTokenMs: 8_000 },
  sampling: { reasoningEffort: 'low' },
  tools: [price, order],
  outputSchema: z.object({ answer: z.string(), total: z.number().nullable() }),
  outputKey: 'offer',
  plugins: [guardrail({ name: 'cards', at: ['input', 'output'], check: [/\b\d{16}\b/], action: 'redact' })],
});
