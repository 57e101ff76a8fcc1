import { type SQL, sql } from 'drizzle-orm';
import { countUse, overBudget, toUse } from '../conversation/budgets/budget-store.ts';
import { type OverBudget, overBudgetError } from '../conversation/budgets/budget.ts';
import type { SessionKey } from '../core/session.ts';

/** What budgets add to the statements that claim a session. */
interface Claim {
  key: SessionKey;
  isFree?: true;
}

/** The CTE `over`: a budget with nothing left, unless the claim is free or `isRepeated`, whose answer is stored. */
export const overCte = ({ key, isFree }: Claim, isRepeated: SQL): SQL => sql`over as materialized (
  select (${overBudget(key, undefined)}) as budget where ${isFree === true ? sql`false` : sql`not ${isRepeated}`})`;

/** The condition that {@link overCte} found none. */
export const WITHIN_BUDGET: SQL = sql`not exists (select 1 from over where budget is not null)`;

/** The CTE that counts the invocation of a claim. */
export const countClaim = ({ key, isFree }: Claim): SQL => countUse(key, isFree === true ? undefined : toUse(1, []));

/** What a claim found. */
export interface ClaimedRow extends Record<string, unknown> {
  claimed: boolean;
  over: OverBudget | null;
}

/** What a claim answers. */
export const CLAIMED: SQL = sql`select exists (select 1 from advanced) as claimed, (select budget from over) as over`;

/** True for a claim that was granted. @throws {LimitError} where a budget has nothing left */
export function toClaimed(row: ClaimedRow | undefined): boolean {
  if (row?.claimed !== true && row?.over) throw overBudgetError(row.over);
  return row?.claimed === true;
}
