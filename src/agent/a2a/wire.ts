import { z } from 'zod';

/** Version of the A2A protocol in requests to other agents. */
export const VERSION = '1.0';
/** Older version of the A2A protocol, for other agents that speak no newer one. */
export const OLD_VERSION = '0.3';

/** Member of a message's metadata: the agents that wait for the reply to it, outermost first, to detect cycles. */
export const CHAIN = 'agent-runtime/chain';
/** State key of the list of agents that wait for the reply of this invocation ({@link CHAIN}). */
export const CHAIN_STATE = 'temp:a2a_chain';
export const MAX_CHAIN = 8;
export const chainSchema = z.array(z.string().max(2_048)).max(MAX_CHAIN);

/** Metadata member. In a message: how many model calls the other agent may make; in a task: how many it made. */
export const CALLS = 'agent-runtime/modelCalls';
export const callsSchema = z.int().min(0).max(1_000_000);
/** Metadata member. In a message: how many tokens the other agent may use; in a task: how many it used. */
export const TOKENS = 'agent-runtime/tokens';
export const usedSchema = z.object({ prompt: callsSchema, output: callsSchema });
/** Member of a message's metadata: time within which the caller needs the reply, in milliseconds. */
export const TIME = 'agent-runtime/timeMs';
