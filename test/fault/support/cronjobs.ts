import type { Pool } from 'pg';
import { newSecret } from '../../../src/invocations/webhooks/address.ts';
import { type Received, type Receiver, verifies } from '../../support/webhook-receiver.ts';
import { APP, eventually } from './faults.ts';
import { MINUTE } from '../../support/patience.ts';

const ENDED_WITHIN_MS = 2 * MINUTE;
/** The lease of an attempt, which a killed process leaves behind, and the work after it. */
const SENT_WITHIN_MS = 180_000;

/**
 * Cronjobs that are due once, in so many milliseconds; the model takes its time, so that a kill finds runs in the
 * middle.
 */
export async function insertDue(
  sql: Pool,
  round: string,
  count: number,
  inMs: number,
  webhookUrl?: string,
): Promise<void> {
  await sql.query(
    `insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                           max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures, webhook_url,
                           next_run_time)
     select $1, $2, $2 || '-' || n, 'n', '#id=' || $2 || '-' || n || ' #calls=1 #delay=' || 60 * (n % 5),
            jsonb_build_object('type', 'once',
                               'onceAt', to_char(due at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')),
            true, 'new', 'once', 'skip', 1, 1, 1, 0, $5, due
     from generate_series(1, $3::int) n,
          (select date_trunc('milliseconds', clock_timestamp() + $4 * interval '1 millisecond') as due) d`,
    [APP, round, count, inMs, webhookUrl ?? null],
  );
  await sql.query(`select pg_notify('agent_runtime', '["cronjobs"]')`);
}

/** Settles when so many runs of a round have ended. */
export const allEnded = (sql: Pool, round: string, count: number) =>
  eventually('every run has ended', ENDED_WITHIN_MS, async () => {
    const { rows } = await sql.query<{ n: number }>(
      'select count(*)::int as n from cronjob_runs where user_id = $1 and end_time is not null',
      [round],
    );
    return (rows[0]?.n ?? 0) >= count;
  });

/**
 * What is wrong with the runs of a round: due times without a run, with two, prompts that were given twice, wrong
 * ends. A run whose process was killed in the middle succeeds in another.
 */
export async function violationsOf(sql: Pool, round: string): Promise<unknown[]> {
  const { rows } = await sql.query(
    `select j.id, r.runs, r.statuses, i.prompts
     from cronjobs j
     cross join lateral (select count(*)::int as runs, array_agg(concat_ws(': ', status, error_code)) as statuses,
                                min(session_id) as session_id,
                                bool_and(start_time is null or start_time >= due_time) as is_in_time
                         from cronjob_runs where user_id = j.user_id and cronjob_id = j.id) r
     cross join lateral (select count(*)::int as prompts from events e
                         where e.user_id = j.user_id and e.session_id = r.session_id and e.author = 'user'
                           and e.payload -> 'content' -> 'parts' -> 0 ? 'text') i
     where j.user_id = $1
       and (r.runs <> 1 or i.prompts <> 1 or not r.is_in_time or j.enabled
            or not (r.statuses <@ array['success']))`,
    [round],
  );
  return rows;
}

/** How many runs of a round ended how. */
export const statusesOf = async (sql: Pool, round: string) => {
  const { rows } = await sql.query<{ status: string; n: number }>(
    'select status, count(*)::int as n from cronjob_runs where user_id = $1 group by status order by status',
    [round],
  );
  return Object.fromEntries(rows.map(({ status, n }) => [status, n])) as Record<string, number>;
};

/** A webhook of the user of a round. */
export interface RoundHook {
  url: string;
  secret: string;
}

/** Registers a webhook for a round, as the operation does. */
export async function insertHook(sql: Pool, round: string, { origin }: Receiver): Promise<RoundHook> {
  const [url, secret] = [`${origin}/${round}`, newSecret()];
  await sql.query(
    `insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
     values ($1, $2, $2, $3, $4, true, $5)`,
    [APP, round, url, new URL(url).host, secret],
  );
  return { url, secret };
}

/** Settles when nothing of a round waits to be sent. */
export const allSent = (sql: Pool, round: string) =>
  eventually('every delivery has ended', SENT_WITHIN_MS, async () => {
    const { rows } = await sql.query<{ n: number }>(
      `select count(*)::int as n from webhook_deliveries where user_id = $1 and status = 'pending'`,
      [round],
    );
    return rows[0]?.n === 0;
  });

/**
 * What is wrong with the deliveries of a round: ends that nobody was sent, with several ids, wrongly signed, or that
 * did not happen.
 */
export async function wrongDeliveries(sql: Pool, round: string, hook: RoundHook, receiver: Receiver) {
  const { rows } = await sql.query<{ id: string; status: string }>(
    'select id, status from cronjob_runs where user_id = $1 and end_time is not null',
    [round],
  );
  const byRun = Map.groupBy(receiver.at(`/${round}`), ({ message }) => String(message.data['runId']));
  const isRight = (sent: Received[], status: string) =>
    new Set(sent.map(({ id }) => id)).size === 1 &&
    sent.every((each) => each.message.data['status'] === status && verifies(hook.secret, each));
  const wrong = rows.filter(({ id, status }) => !isRight(byRun.get(id) ?? [], status));
  const invented = [...byRun.keys()].filter((id) => !rows.some((row) => row.id === id));
  return [...wrong, ...invented];
}
