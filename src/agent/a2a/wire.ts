import { z } from 'zod';

/** Version of the A2A protocol in requests to other agents. */
export const VERSION = '1.0';
/** Older version of the A2A protocol that is accepted too. */
export const OLD_VERSION = '0.3';

/** Member of a message's metadata: the agents that wait for its reply, outermost first, so that cycles are detected. */
export const CHAIN = 'agent-runtime/chain';
/** State key under which an invocation holds that list of waiting agents. */
export const CHAIN_STATE = 'temp:a2a_chain';
export const MAX_CHAIN = 8;
export const chainSchema = z.array(z.string().max(2_048)).max(MAX_CHAIN);

/** Metadata member. In a message: maximum number of model calls for the reply; in a task: number of calls made. */
export const CALLS = 'agent-runtime/modelCalls';
export const callsSchema = z.int().min(0).max(1_000_000);
/** Metadata member. In a message: maximum number of tokens for the reply; in a task: number of tokens used. */
export const TOKENS = 'agent-runtime/tokens';
export const usedSchema = z.object({ prompt: callsSchema, output: callsSchema });
/** Member of a message's metadata: time until the reply must be there, in milliseconds. */
export const TIME = 'agent-runtime/timeMs';
