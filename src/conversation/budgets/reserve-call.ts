import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Model, type ModelAnswer, type ModelRequest, toCallUse } from '../../agent/definition/model.ts';
import { abortError } from '../../core/abort.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { spend } from './budget-store.ts';
import { type OverBudget, OverBudgetError } from './budget.ts';

/** Output tokens of a budgeted call if the agent sets no `maxOutputTokens`; current models may generate this many. */
const DEFAULT_OUTPUT_TOKENS = 8_192;
/** Upper bound of the tokens that a provider adds to a request, for tools and turns. */
const OVERHEAD_TOKENS = 512;
/** Characters of base64 media estimated as one token; the most expensive media, audio, costs one token per 31. */
const MEDIA_CHARACTERS_PER_TOKEN = 16;
/** Minimum estimate for a media part, in tokens, because an image of few bytes may have many pixels. */
const MIN_MEDIA_TOKENS = 5_000;
/** Default time in milliseconds after which a reservation expires unless it is renewed. */
const RESERVED_MS = 30_000;
/** Pause in milliseconds between attempts while other calls have reserved the rest of the budget. */
const PAUSE_MS = 250;

/** A model call with a budget reservation; its request has an output limit. */
export interface ReservedCall {
  request: ModelRequest;
  /** Id of the reservation. The caller passes it on with the counted use, which releases the reservation. */
  reservation: string;
  /**
   * Must be called when the model call has ended: stops renewing the reservation, which expires unless it is released.
   */
  end(): void;
}

/**
 * Reserves the maximum that a model call may use in the user's budgets. While other running calls have reserved the
 * rest, it waits. If the process dies, the reservation expires after `durationMs`.
 * @returns the exhausted budget if waiting cannot help
 * @throws the abort reason of `request.signal`
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
  // A failed renewal is ignored, because a reservation lasts for three renewal intervals.
  const renew = () => void callFunction(db, 'renew_reservation', call).catch(() => undefined);
  const timer = setInterval(renew, durationMs / 3);
  return { request: bound.request, reservation, end: () => clearInterval(timer) };
}

/** Result of SQL `reserve_budget`; `limited` is false if no budget for tokens or cost applies to the user. */
interface Reserved {
  reserved: boolean;
  over: OverBudget | null;
  limited: boolean;
}

/** Makes a model call within the user's budgets and charges it. @throws {LimitError} if the budget is too small */
export type Spend = (model: Model, request: ModelRequest) => Promise<ModelAnswer>;

/** Charges a user for model calls outside the agent loop, such as the calls of a judge model in an evaluation. */
export const spendWith =
  (db: Database, user: Pick<SessionKey, 'appName' | 'userId'>): Spend =>
  async (model, request) => {
    const reserved = await reserveCall(db, user, { ...request, asWhole: true });
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

/** Returns the maximum tokens of a model call (prompt and output), and the request with that limit on the output. */
export function boundCall(request: ModelRequest): { request: ModelRequest; prompt: number; output: number } {
  const output = request.sampling.maxOutputTokens ?? DEFAULT_OUTPUT_TOKENS;
  const bounded = { ...request, sampling: { ...request.sampling, maxOutputTokens: output } };
  return { request: bounded, prompt: boundPrompt(request), output };
}

/** Upper bound of a request's prompt tokens: a tokenizer makes at most one token per byte. */
function boundPrompt({ instruction, contents, tools, outputSchema }: ModelRequest): number {
  let media = 0;
  const text = JSON.stringify({ instruction, contents, tools, outputSchema }, (name, value: unknown) => {
    if (name !== 'inlineData' && name !== 'fileData') return value;
    media += Math.max(MIN_MEDIA_TOKENS, Math.ceil(JSON.stringify(value).length / MEDIA_CHARACTERS_PER_TOKEN));
    return undefined;
  });
  return OVERHEAD_TOKENS + media + Buffer.byteLength(text);
}
