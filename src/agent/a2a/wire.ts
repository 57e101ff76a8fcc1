import { z } from 'zod';

/** The version of the protocol that is spoken. */
export const VERSION = '1.0';
/** The version that is understood beside it. */
export const OLD_VERSION = '0.3';

/** The member of the metadata of a message that lists the agents which wait for its answer, outermost first. */
export const CHAIN = 'agent-runtime/chain';
/** The key of the state under which an invocation has that list. */
export const CHAIN_STATE = 'temp:a2a_chain';
/** Most agents that wait for one another. */
export const MAX_CHAIN = 8;
/** Such a list. */
export const chainSchema = z.array(z.string().max(2_048)).max(MAX_CHAIN);

/** The member of the metadata of a message with the model calls that its answer may take, of a task with those made. */
export const CALLS = 'agent-runtime/modelCalls';
/** Such a number. */
export const callsSchema = z.int().min(0).max(1_000_000);
/** The member of the metadata of a message with the tokens that its answer may take, of a task with those taken. */
export const TOKENS = 'agent-runtime/tokens';
/** Such tokens of a task. */
export const usedSchema = z.object({ prompt: callsSchema, output: callsSchema });
/** The member of the metadata of a message with the time that is left to its answer, milliseconds. */
export const TIME = 'agent-runtime/timeMs';
