/** Published when there is something to send; the triggers that fill the outbox write this very name (migrations). */
export const WEBHOOKS_TOPIC = 'webhooks';
