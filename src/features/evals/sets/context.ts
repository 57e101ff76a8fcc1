import type { Response } from 'express';
import { z } from 'zod';
import type { InvocationContext } from '../../../invocations/context.ts';
import { area } from '../../../platform/http/operation/area.ts';
import { appPath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import type { EvaluationSettings } from './settings.ts';
import { evalSetSchema, exampleEvalSet } from './eval-set.ts';
import { evalSetNotFound } from './eval-set-store.ts';

export interface EvalContext extends InvocationContext {
  config: Pick<EvaluationSettings, 'EVALS_JUDGE_MODEL'>;
}

export const DEV_APP_PATH = '/dev/apps/{app_name}';
export const idsSchema = z.array(z.string());

/** Declares the evaluation operations, which are for developers. A developer sees only their own sets and runs. */
export const room = area<EvalContext>('Evaluation (development server)', {
  read: 'develop',
  write: 'develop',
  owner: 'caller',
  isIdempotent: true,
});

// No `find`, because each operation reads only what it needs of a set, or changes the set in one statement.
export const evalSet = room.resource({
  noun: 'set',
  id: 'EvalSet',
  path: `${DEV_APP_PATH}/eval-sets`,
  within: appPath,
  key: evalSetPath,
  schema: evalSetSchema,
  example: exampleEvalSet,
  absent: evalSetNotFound,
});

/**
 * Owner id of the caller's sets and runs: a token's user id, or an id from the name of an API key bound to users, with
 * a control character, which user ids must not contain. `undefined` for a caller who may see all.
 */
export function getRequester(principal: Principal): string | undefined {
  if (principal.kind === 'user') return principal.userId;
  return principal.kind === 'key' && principal.users ? `\u0001key ${principal.id ?? ''}` : undefined;
}

/**
 * Who says something about a session: the user of a token, `key` and the id of a key, or `local`. A user that is called
 * like another author has `user` in front, so that nobody replaces what a key has said.
 */
export function getAuthor(principal: Principal): string {
  if (principal.kind === 'user') {
    const { userId } = principal;
    return /^(?:(?:key|user)(?: |$)|local$)/.test(userId) ? `user ${userId}` : userId;
  }
  return principal.kind === 'key' ? `key ${principal.id ?? ''}`.trim() : 'local';
}

/** Adds the caller's owner id to the key of a set, because only sets that the caller may see must be found. */
export const toOwnKey = <Path>(path: Path, principal: Principal) => ({ ...path, ownerId: getRequester(principal) });

export function toDisconnectSignal(response: Response): AbortSignal {
  const controller = new AbortController();
  response.on('close', () => controller.abort());
  return controller.signal;
}
