import { type SQL, and, asc, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { budgets, budgetUses, modelPrices } from '../../platform/db/schema/schema.ts';
import { excluded, insertSelect, names } from '../../platform/db/sql.ts';
import { shapedStatement } from '../../platform/db/statement.ts';
import type { Budget, ModelPrice, ModelUse, OverBudget } from './budget.ts';

/**
 * Rows of one user and day at most. A connection counts in a row of its own, so that it does not wait for the commit
 * of another: with 16 invocations of a user in flight and 8 rows by chance, a claim took 2.7 ms, now 0.65.
 */
const SHARDS = 32;
/** Today in UTC, fixed for the statement, so that an index on the day can be used. */
const TODAY = sql`(statement_timestamp() at time zone 'utc')::date`;

/** A usage to charge, as a parameter of a statement. */
export interface Use {
  invocations: number;
  promptTokens: number;
  outputTokens: number;
  /** JSON of what each model used, escaped: an override names a model by any text. */
  models: string;
}

/** Adds up a number of invocations and the tokens of models; `undefined` if both are empty. */
export function toUse(invocations: number, models: readonly ModelUse[]): Use | undefined {
  if (invocations === 0 && models.length === 0) return undefined;
  const sumTokens = (member: 'promptTokens' | 'outputTokens') => models.reduce((sum, use) => sum + use[member], 0);
  return {
    invocations,
    promptTokens: sumTokens('promptTokens'),
    outputTokens: sumTokens('outputTokens'),
    models: escapeJson(models),
  };
}

/**
 * The cost of a usage; a model without a price is free. The rule for the price is that of `inspect.invocation_costs`,
 * which knows the name of the provider only, and of `priceOf` in evaluation.
 */
const toCost = ({ models }: Use): SQL => {
  const { model, promptPrice, outputPrice } = modelPrices;
  return sql`(select coalesce(sum(
      (used."promptTokens" * price.prompt + used."outputTokens" * price.output) / 1000000), 0)
    from jsonb_to_recordset(${models}::jsonb)
      as used(model text, "answeredAs" text, "promptTokens" bigint, "outputTokens" bigint)
    left join lateral (
      select ${promptPrice} as prompt, ${outputPrice} as output from ${modelPrices}
      where starts_with(used."answeredAs", ${model}) or starts_with(used.model, ${model}) or ${model} = '*'
      order by ${model} = '*', not starts_with(used."answeredAs", ${model}), length(${model}) desc limit 1) price
      on true)`;
};

/** The CTE `counted` that adds what is used where the CTE `advanced` has a row. */
export function countUse({ appName, userId }: SessionKey, use: Use | undefined): SQL {
  if (!use) return sql``;
  const insert = insertSelect(budgetUses, {
    appName,
    userId,
    day: TODAY,
    shard: sql`(pg_backend_pid() % ${SHARDS}::int)::smallint`,
    invocations: sql`${use.invocations}::bigint`,
    promptTokens: sql`${use.promptTokens}::bigint`,
    outputTokens: sql`${use.outputTokens}::bigint`,
    cost: toCost(use),
  });
  const added = [budgetUses.invocations, budgetUses.promptTokens, budgetUses.outputTokens, budgetUses.cost].map(
    (column) => sql`${names(column)} = ${column} + excluded.${names(column)}`,
  );
  return sql`, counted as (
    ${insert} from advanced
    on conflict (${names(budgetUses.appName, budgetUses.userId, budgetUses.day, budgetUses.shard)})
    do update set ${sql.join(added, sql`, `)})`;
}

/**
 * A query for the budget that has nothing left once this is used, as JSON of `OverBudget`; of several the one that
 * opens last. It reads what was counted before the statement that it is part of.
 */
export function overBudget({ appName, userId }: SessionKey, use: Use | undefined): SQL {
  const b = budgets;
  const u = budgetUses;
  const own = sql`${b.appliesTo} = 'user' and ${b.userId} = ${userId}`;
  const hasOwn = sql`exists (select from ${budgets} mine where mine.app_name = ${appName}
    and mine.applies_to = 'user' and mine.user_id = ${userId} and mine.period = ${b.period})`;
  const since = sql`case ${b.period} when 'day' then ${TODAY} else date_trunc('month', ${TODAY}::timestamp)::date end`;
  const tokens = use ? sql`used.tokens + ${use.promptTokens}::bigint + ${use.outputTokens}::bigint` : sql`used.tokens`;
  const cost = use ? sql`used.cost + ${toCost(use)}` : sql`used.cost`;
  // Each by itself: with both conditions in one, a budget of users read what all users of all days had used. That of
  // an application is a function: a cluster then asks all of its nodes for this, and one of them for the rest.
  return sql`select json_build_object('appliesTo', applies_to, 'period', period, 'what', what,
      'seconds', ceil(extract(epoch from opens - clock_timestamp())),
      'opens', to_char(opens at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    from (
      select ${b.appliesTo} as applies_to, ${b.period} as period,
        case when used.invocations >= ${b.maxInvocations} then 'invocations'
             when ${tokens} >= ${b.maxTokens} then 'tokens'
             when ${cost} >= ${b.maxCost} then 'cost' end as what,
        case ${b.period} when 'day' then ${TODAY} + interval '1 day'
             else date_trunc('month', ${TODAY}::timestamp) + interval '1 month' end at time zone 'utc' as opens
      from ${budgets} cross join lateral (
        select coalesce(sum(${u.invocations}), 0) as invocations,
               coalesce(sum(${u.promptTokens} + ${u.outputTokens}), 0) as tokens, coalesce(sum(${u.cost}), 0) as cost
        from ${budgetUses} where ${u.appName} = ${appName} and ${u.userId} = ${userId} and ${u.day} >= ${since}
        having ${b.appliesTo} <> 'app'
        union all
        select * from budget_uses_of_app(${appName}, ${since}) where ${b.appliesTo} = 'app') used
      where ${b.appName} = ${appName}
        and (${b.appliesTo} = 'app' or ${own} or (${b.appliesTo} = 'users' and not ${hasOwn}))) looked
    where what is not null order by opens desc limit 1`;
}

/**
 * Counts what was used outside of an invocation that is stored. One statement.
 * @returns the budget that has nothing left with it
 */
export async function spend(db: Database, key: SessionKey, models: readonly ModelUse[]): Promise<OverBudget | null> {
  const [row] = await countSpent(db, { key, use: toUse(0, models) });
  return row?.over ?? null;
}

const countSpent = shapedStatement<{ key: SessionKey; use: Use | undefined }, { over: OverBudget | null }>(
  ({ key, use }) => sql`with advanced as (select)${countUse(key, use)} select (${overBudget(key, use)}) as over`,
  ({ key }) => key.userId,
);

/** The budgets of an application: its own, that of each user, then those of users by name. */
export async function listBudgets(db: Database, appName: string): Promise<Budget[]> {
  const { appliesTo, userId, period, maxInvocations, maxTokens, maxCost } = budgets;
  const rows = await db
    .select({ appliesTo, userId, period, maxInvocations, maxTokens, maxCost })
    .from(budgets)
    .where(eq(budgets.appName, appName))
    .orderBy(asc(appliesTo), asc(userId), asc(period));
  return rows.map(({ userId: forUser, ...row }) => ({ ...row, forUser: forUser === '' ? null : forUser }));
}

/** Saves a budget in the place of the one for the same; one without a maximum is deleted. */
export async function saveBudget(db: Database, appName: string, budget: Budget): Promise<void> {
  const { appliesTo, period, maxInvocations = null, maxTokens = null, maxCost = null } = budget;
  const key = { appName, userId: appliesTo === 'user' ? (budget.forUser ?? '') : '', appliesTo, period };
  const maxima = { maxInvocations, maxTokens, maxCost };
  if (maxInvocations === null && maxTokens === null && maxCost === null) {
    const { appName: app, userId, appliesTo: applies, period: each } = budgets;
    const isThis = and(eq(app, appName), eq(userId, key.userId), eq(applies, appliesTo), eq(each, period));
    await db.delete(budgets).where(isThis);
    return;
  }
  await db
    .insert(budgets)
    .values({ ...key, ...maxima, updateTime: sql`clock_timestamp()` })
    .onConflictDoUpdate({
      target: [budgets.appName, budgets.userId, budgets.appliesTo, budgets.period],
      set: { ...maxima, updateTime: excluded(budgets.updateTime) },
    });
}

/** Lists the prices of models by name. */
export async function listModelPrices(db: Database): Promise<ModelPrice[]> {
  const { model, promptPrice, outputPrice } = modelPrices;
  return await db.select({ model, promptPrice, outputPrice }).from(modelPrices).orderBy(asc(model));
}

/** Saves the price of a model; what was counted before keeps its cost. */
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
