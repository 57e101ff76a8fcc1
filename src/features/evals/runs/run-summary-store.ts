import { eq, type SQL, sql } from 'drizzle-orm';
import { evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';

/** What the cases of a run say together, as pieces of queries for runs. */

const isCaseOf = sql`${evalRunCases.appName} = ${evalRuns.appName} and ${evalRunCases.runId} = ${evalRuns.id}`;

/** A query for the counts of the cases of a run, as JSON. */
export function countsOfCases(): SQL {
  const c = evalRunCases;
  const count = (condition: SQL) => sql`count(*) filter (where ${condition})::int`;
  const finalStatus = sql`${c.result} ->> 'finalStatus'`;
  return sql`select jsonb_build_object(
      'total', count(*), 'waiting', ${count(eq(c.status, 'waiting'))}, 'running', ${count(eq(c.status, 'running'))},
      'errors', ${count(eq(c.status, 'error'))}, 'cancelled', ${count(eq(c.status, 'cancelled'))},
      'passed', ${count(sql`${finalStatus} = 'PASSED'`)}, 'failed', ${count(sql`${finalStatus} = 'FAILED'`)},
      'notEvaluated', ${count(sql`${finalStatus} = 'NOT_EVALUATED'`)}) from ${c} where ${isCaseOf}`;
}

/** A query for the mean score of each metric over the cases of a run, as JSON; null where none gave one. */
export const meanScores = sql`select coalesce(jsonb_object_agg(means.name, means.mean), '{}') from (
  select m ->> 'metricName' as name, avg((m ->> 'score')::float8) as mean
  from ${evalRunCases} cross join lateral jsonb_array_elements(${evalRunCases.result} -> 'overall') m
  where ${isCaseOf} group by 1) means`;

/** The counts of the cases of a run: as it ended, else counted now. */
export const runCounts = sql`coalesce(${evalRuns.summary} -> 'counts', (${countsOfCases()}))`;
