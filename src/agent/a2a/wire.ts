import { z } from 'zod';

/** A2A version of outgoing requests. */
export const VERSION = '1.0';
/** Older A2A version that is also accepted. */
export const OLD_VERSION = '0.3';

/** Member of a message's metadata that lists the agents waiting for its answer, outermost first. It detects cycles. */
export const CHAIN = 'agent-runtime/chain';
/** State key that holds the chain during an invocation. */
export const CHAIN_STATE = 'temp:a2a_chain';
export const MAX_CHAIN = 8;
export const chainSchema = z.array(z.string().max(2_048)).max(MAX_CHAIN);

/** Member of a message's metadata: model calls that the answer may use. In a task's metadata: calls that were made. */
export const CALLS = 'agent-runtime/modelCalls';
export const callsSchema = z.int().min(0).max(1_000_000);
/** Member of a message's metadata: tokens that the answer may use. In a task's metadata: tokens that were used. */
export const TOKENS = 'agent-runtime/tokens';
export const usedSchema = z.object({ prompt: callsSchema, output: callsSchema });
/** Member of a message's metadata: time left for the answer, in milliseconds. */
export const TIME = 'agent-runtime/timeMs';
