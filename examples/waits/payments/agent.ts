import { defineAgent, defineTool } from 'agent-runtime';

/** Pays a bill, once two people of the group `finance` have said yes, who are not the one who asked. */
const pay = defineTool({
  name: 'pay',
  description: 'Pays an amount to a supplier.',
  parameters: {
    type: 'object',
    properties: { to: { type: 'string' }, euros: { type: 'number', exclusiveMinimum: 0 } },
    required: ['to', 'euros'],
    additionalProperties: false,
  },
  needsConfirmation: true,
  // After two days it is for the directors, for as long again; then it is refused.
  wait: ({ to, euros }) => ({
    hint: `Pay ${String(euros)} € to ${String(to)}?`,
    groups: ['finance'],
    approvals: 2,
    excludesRequester: true,
    expiresAfter: 172_800,
    remindAfter: [86_400],
    escalateTo: ['directors'],
  }),
  // Stands for your bank. `operationId` stays the same where the call is made again: it is the bank's idempotency key.
  run: async ({ to, euros }, { operationId }) => ({ paid: euros, to, transfer: operationId }),
});

/** The application `payments`. */
export const agent = defineAgent({ description: 'Pays bills.', instruction: 'You pay bills.', tools: [pay] });
