import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Model, type ModelAnswer, type ModelRequest, toCallUse } from '../../agent/definition/model.ts';
import { abortError } from '../../core/abort.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { spend } from './budget-store.ts';
import { type OverBudget, OverBudgetError } from './budget.ts';

/** Output tokens of a call under a budget whose agent sets no `maxOutputTokens`: current models may answer so many. */
const DEFAULT_OUTPUT_TOKENS = 8_192;
/** Tokens beside those of the request: what a provider adds for tools and turns. */
const OVERHEAD_TOKENS = 512;
/** A media part counts one token for 16 of its characters, more than providers do (sound, the dearest: one for 31). */
const MEDIA_CHARACTERS_PER_TOKEN = 16;
/** The least that a media part counts: a picture of few bytes can be large. */
const MIN_MEDIA_TOKENS = 5_000;
/** How long a reservation outlives the last sign of its process, where no lease says so [half a minute]. */
const RESERVED_MS = 30_000;
/** Pause between two tries while others have reserved what is left. */
const PAUSE_MS = 250;

/** A model call that may be made: its request with a bound of the answer. */
export interface ReservedCall {
  request: ModelRequest;
  /** Names the reservation where the use is counted, which gives it back. */
  reservation: string;
  /** Called when the call has ended: what is not counted then is given back after `durationMs`. */
  end(): void;
}

/**
 * Reserves in the budgets of a user what a model call may use at most, and waits while calls under way have reserved
 * what is left. A process that dies gives it back after `durationMs`.
 * @returns the budget that has less left than that, whatever others give back
 * @throws what `request.signal` was aborted with
 */
export async function reserveCall(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  request: ModelRequest,
  durationMs = RESERVED_MS,
): Promise<ReservedCall | OverBudget> {
  const { signal } = request;
  const reservation = randomUUID();
  const bound = boundCall(request);
  const call = { p_app: appName, p_user: userId, p_id: reservation, p_duration_ms: durationMs };
  const bounds = { p_model: request.modelName, p_prompt: bound.prompt, p_output: bound.output };
  for (;;) {
    const reserve = callFunction<Reserved>(db, 'reserve_budget', { ...call, ...bounds });
    const { reserved, over, limited } = await reserve;
    if (over) return over;
    if (reserved && !limited) return { request, reservation, end: () => undefined };
    if (reserved) break;
    await sleep(PAUSE_MS * (0.5 + Math.random()), undefined, { signal }).catch(() => {
      throw abortError(signal);
    });
  }
  // A renewal that fails is made up for by the next one; two may fail.
  const renew = () => void callFunction(db, 'renew_reservation', call).catch(() => undefined);
  const timer = setInterval(renew, durationMs / 3);
  return { request: bound.request, reservation, end: () => clearInterval(timer) };
}

/** The answer of `reserve_budget`: not `limited` is a user whom no budget of tokens or cost applies to. */
interface Reserved {
  reserved: boolean;
  over: OverBudget | null;
  limited: boolean;
}

/** Makes a model call within budgets and counts it. @throws {LimitError} where less is left than it may use */
export type Spend = (model: Model, request: ModelRequest) => Promise<ModelAnswer>;

/** Charges a model call beside the agent's own, that of a judge for instance, to a user. */
export const spendWith =
  (db: Database, user: Pick<SessionKey, 'appName' | 'userId'>): Spend =>
  async (model, request) => {
    const reserved = await reserveCall(db, user, request);
    if ('what' in reserved) throw new OverBudgetError(reserved);
    try {
      const answer = model.generate(reserved.request);
      for (;;) {
        const step = await answer.next();
        if (!step.done) continue;
        await spend(db, user, [{ ...toCallUse(request.modelName, step.value), reservation: reserved.reservation }]);
        return step.value;
      }
    } finally {
      reserved.end();
    }
  };

/** Bounds a model call: the most tokens of its prompt and of its answer, and the request that holds it to them. */
export function boundCall(request: ModelRequest): { request: ModelRequest; prompt: number; output: number } {
  const output = request.sampling.maxOutputTokens ?? DEFAULT_OUTPUT_TOKENS;
  const bounded = { ...request, sampling: { ...request.sampling, maxOutputTokens: output } };
  return { request: bounded, prompt: boundPrompt(request), output };
}

/** Bounds the tokens of a request from above: no tokenizer makes more of a text than it has bytes. */
function boundPrompt({ instruction, contents, tools, outputSchema }: ModelRequest): number {
  let media = 0;
  const text = JSON.stringify({ instruction, contents, tools, outputSchema }, (name, value: unknown) => {
    if (name !== 'inlineData' && name !== 'fileData') return value;
    media += Math.max(MIN_MEDIA_TOKENS, Math.ceil(JSON.stringify(value).length / MEDIA_CHARACTERS_PER_TOKEN));
    return undefined;
  });
  return OVERHEAD_TOKENS + media + Buffer.byteLength(text);
}
