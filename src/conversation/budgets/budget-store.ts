import { and, asc, eq, inArray, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import { callFunction } from '../../platform/db/statement.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeList } from '../../platform/json-escape.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { budgetAlerts, budgetReservations, budgets, budgetUses, modelPrices } from '../../platform/db/schema/schema.ts';
import { excluded } from '../../platform/db/sql.ts';
import type { Budget, ModelPrice, ModelUse, OverBudget, UsedBudget } from './budget.ts';

/** Charges model use that no stored event accounts for, once per `id`. @returns the exhausted budget, if any */
export async function spend(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  models: readonly ModelUse[],
  id?: string,
): Promise<OverBudget | null> {
  const parameters = { p_app: appName, p_user: userId, p_models: escapeList(models), p_id: id };
  return (await callFunction<{ over: OverBudget | null }>(db, 'spend_budget', parameters)).over;
}

/**
 * Lists an application's budgets by their key: the application's own, those of every user, then those of single users.
 * User ids that begin with a control character are excluded: they are those of score rules, which pay for judge models.
 */
export async function listBudgets(
  db: Database,
  appName: string,
  { ofUser, limit, after }: BudgetPage,
): Promise<UsedBudget[]> {
  const { appliesTo, userId, period, maxInvocations, maxTokens, maxCost, webhookId } = budgets;
  const isAfter =
    after &&
    sql`(${userId}, ${appliesTo}, ${period}) > (${sql.join(
      after.map((text) => sql`${text}`),
      sql`, `,
    )})`;
  const rows = await db
    .select({ appliesTo, userId, period, maxInvocations, maxTokens, maxCost, webhookId, used: useOf(ofUser) })
    .from(budgets)
    .where(and(eq(budgets.appName, appName), sql`(${userId} = '' or ${userId} >= ' ')`, isAfter))
    .orderBy(asc(userId), asc(appliesTo), asc(period))
    .limit(limit);
  return rows.map(({ userId: forUser, used, ...row }) => ({
    ...row,
    forUser: forUser === '' ? null : forUser,
    ...(used && { used, isUsedUp: isUsedUp(row, used) }),
  }));
}

interface BudgetPage {
  /** The user whose use is that of the budgets of every user. */
  ofUser: string | undefined;
  limit: number;
  /** {@link toBudgetPlace} of the last budget of the page before. */
  after: string[] | undefined;
}

/** The key of a budget within its application, in the order of a list. */
export const toBudgetPlace = ({ forUser, appliesTo, period }: BudgetKey) => [forUser ?? '', appliesTo, period];

const isUsedUp = (most: Pick<Budget, 'maxInvocations' | 'maxTokens' | 'maxCost'>, used: Used): boolean =>
  used.invocations >= (most.maxInvocations ?? Infinity) ||
  used.tokens >= (most.maxTokens ?? Infinity) ||
  used.cost >= (most.maxCost ?? Infinity);

/** What is used of a budget in its current period; null where it does not apply to `ofUser`. */
const useOf = (ofUser = '') => sql<Used | null>`(
  select json_build_object('invocations', u.invocations, 'tokens', u.tokens, 'cost', u.cost)
  from budgets_for(budgets.app_name, coalesce(nullif(budgets.user_id, ''), ${ofUser}::text)) u
  where u.applies_to = budgets.applies_to and u.period = budgets.period)`;
type Used = NonNullable<UsedBudget['used']>;

export async function deleteBudget(db: Database, appName: string, budget: BudgetKey): Promise<void> {
  const { appName: app, userId, appliesTo, period } = budgets;
  const key = toKey(appName, budget);
  const isThis = and(eq(app, appName), eq(userId, key.userId), eq(appliesTo, key.appliesTo), eq(period, key.period));
  await db.delete(budgets).where(isThis);
}

/** Upserts a budget; deletes it if all its limits are null. */
export async function saveBudget(db: Database, appName: string, budget: Budget): Promise<void> {
  const { maxInvocations = null, maxTokens = null, maxCost = null, webhookId = null } = budget;
  const maxima = { maxInvocations, maxTokens, maxCost, webhookId };
  if (maxInvocations === null && maxTokens === null && maxCost === null) return await deleteBudget(db, appName, budget);
  const key = toKey(appName, budget);
  await db
    .insert(budgets)
    .values({ ...key, ...maxima, updateTime: sql`clock_timestamp()` })
    .onConflictDoUpdate({
      target: [budgets.appName, budgets.userId, budgets.appliesTo, budgets.period],
      set: { ...maxima, updateTime: excluded(budgets.updateTime) },
    });
  if (maxInvocations !== null) await db.execute(sql`select count_running(${key.appName}, ${key.userId})`);
}

type BudgetKey = Pick<Budget, 'appliesTo' | 'forUser' | 'period'>;

const toKey = (appName: string, { appliesTo, forUser, period }: BudgetKey) => ({
  appName,
  userId: appliesTo === 'user' ? (forUser ?? '') : '',
  appliesTo,
  period,
});

/** Returns today's usage by user; users without usage are left out. */
export async function listDayUses(db: Database, appName: string, userIds: string[]) {
  const { userId, promptTokens, outputTokens, cost, day } = budgetUses;
  const isToday = sql`${day} = (statement_timestamp() at time zone 'utc')::date`;
  const rows = await db
    .select({
      userId,
      tokens: sql<number>`sum(${promptTokens} + ${outputTokens})::float8`,
      cost: sql<number>`sum(${cost})::float8`,
    })
    .from(budgetUses)
    .where(and(eq(budgetUses.appName, appName), inArray(userId, userIds), isToday))
    .groupBy(userId);
  return new Map(rows.map(({ userId: user, ...used }) => [user, used]));
}

export async function listModelPrices(db: Database): Promise<ModelPrice[]> {
  const { model, promptPrice, outputPrice } = modelPrices;
  return await db.select({ model, promptPrice, outputPrice }).from(modelPrices).orderBy(asc(model));
}

/** Saves a model's price. It applies to future usage; counted costs stay unchanged. */
export async function saveModelPrice(db: Database, { model, promptPrice, outputPrice }: ModelPrice): Promise<void> {
  const updateTime = sql`clock_timestamp()`;
  await db
    .insert(modelPrices)
    .values({ model, promptPrice, outputPrice, updateTime })
    .onConflictDoUpdate({
      target: modelPrices.model,
      set: { promptPrice, outputPrice, updateTime: excluded(modelPrices.updateTime) },
    });
}

/** Counts what users use, with or without budgets. `src/features/budgets` lets operators set them. */
export const usageFeature = {
  name: 'usage',
  userTables: [budgets, budgetUses, budgetReservations, budgetAlerts].map((table) => ({ table, isOperators: true })),
} satisfies Feature;
