import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { startAnsweringProvider } from '../test/support/answering-provider.ts';
import { median, quantile } from './load.ts';
import { freePort, startPostgres } from './postgres.ts';
import { startServer } from './processes.ts';

/**
 * 5,000 sessions are scored by a judge while users work: `npm run bench -- scores`. In one process rules and none in turn:
 * what users wait for an answer, what the judge spends, and whether its failures and lies are in the rows and the
 * metrics. Exit code 1 where users notice, where more is spent than the rule may, or where a score is missing.
 * `--small`: a trial.
 */

const { values } = parseArgs({ options: { small: { type: 'boolean' } } });
const SESSIONS = values.small ? 1_000 : 5_000;
const A_SLICE = 200;
/** Invocations a second, each of a user with a session of its own. */
const USERS_A_SECOND = 20;
/** Share by which half of the answers may take longer while sessions are scored: that of two slices without a rule. */
const NOISE = 0.05;
const APP = 'harness_agent';
const USAGE = { prompt_tokens: 300, completion_tokens: 20, total_tokens: 320 };
/** The last sessions find too little left. */
const MAX_TOKENS = Math.floor(SESSIONS * 0.95) * USAGE.total_tokens;
/** Of a hundred judged sessions: a judge that fails, one that answers nonsense, one that finds harm. */
const FAULTS: Record<number, string> = { 1: 'fails', 2: 'lies', 3: 'harms' };
const judgeModelOptions = { judgeModel: 'umpire', numSamples: 1, judgeModelConfig: { maxOutputTokens: 100 } };
const RULE = {
  evalMetrics: [{ metricName: 'safety_v1', threshold: 1, criterion: { threshold: 1, judgeModelOptions } }],
  quietMinutes: 43_200,
  maxPerDay: 1_000_000,
  maxTokensPerDay: MAX_TOKENS,
};

const provider = await startAnsweringProvider(({ model, prompt }) => {
  if (model !== 'umpire') return 'Sunny.';
  if (prompt.includes('fails')) return { status: 500 };
  if (prompt.includes('lies')) return 'splendid';
  return `{"reason":"r","verdict":"${prompt.includes('harms') ? 'harmful' : 'harmless'}"}`;
}, USAGE);
const postgres = await startPostgres();
let isGood = true;
const report = (what: string, found: string, isOk = true) => {
  isGood &&= isOk;
  console.log(`${isOk ? ' ' : '!'} ${what}: ${found}`);
};
try {
  const databaseUrl = await postgres.createDatabase('scores');
  const [port, metricsPort] = [await freePort(), await freePort()];
  const main = new URL('../src/main.ts', import.meta.url).pathname;
  const { url } = await startServer([main], port, '/ready', {
    DATABASE_URL: databaseUrl,
    PORT: String(port),
    METRICS_PORT: String(metricsPort),
    LOG_LEVEL: 'error',
    EVALS: 'true',
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'answering',
    MODEL_BASE_URL: provider.baseUrl,
    MODEL_API_KEY: 'none',
    MODEL_MAX_RETRIES: '0',
  });
  const send = async (method: string, path: string, body?: object) => {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(`${url}${path}`, { method, headers: { 'content-type': 'application/json' }, ...sent });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text;
  };
  const run = async (userId: string, text: string) => {
    await send('POST', `/apps/${APP}/users/${userId}/sessions`, { sessionId: 's' });
    const newMessage = { role: 'user', parts: [{ text }] };
    const began = performance.now();
    await send('POST', '/run', { appName: APP, userId, sessionId: 's', newMessage });
    return performance.now() - began;
  };
  const sql = new Client({ connectionString: databaseUrl });
  sql.on('error', () => undefined);
  await sql.connect();
  await sql.query(`set agent_runtime.all_users = 'on'`);
  const count = async (text: string) =>
    (await sql.query<{ n: number }>(`select count(*)::int as n ${text}`)).rows[0]?.n ?? 0;

  // All go as the first one did, but for the words of some.
  await run('of0', 'What is the weather?');
  for (const table of ['sessions', 'invocations', 'events']) {
    const { rows } = await sql.query<{ name: string }>(
      `select attname as name from pg_attribute where attrelid = $1::regclass and attnum > 0 and attname <> 'user_id'`,
      [table],
    );
    const names = rows.map(({ name }) => name).join(', ');
    await sql.query(`insert into ${table} (user_id, ${names}) select 'of' || n, ${names}
      from ${table}, generate_series(1, ${SESSIONS}) n where user_id = 'of0'`);
  }
  for (const [rest, word] of Object.entries(FAULTS))
    await sql.query(
      `update events set payload = jsonb_set(payload, '{content,parts,0,text}', to_jsonb($1::text))
       where author <> 'user' and user_id ~ '^of[1-9]' and substr(user_id, 3)::int % 100 = $2`,
      [word, rest],
    );
  await sql.query('vacuum analyze');

  /** Milliseconds of the answers that users wait for, until a moment comes. */
  let [users, failed] = [0, 0];
  const work = async (until: () => Promise<boolean>) => {
    const times: Promise<number | undefined>[] = [];
    const ask = () => run(`user${(users += 1)}`, 'Hello').catch(() => undefined);
    const clock = setInterval(() => times.push(ask()), 1_000 / USERS_A_SECOND);
    while (!(await until())) await sleep(250);
    clearInterval(clock);
    const answered = (await Promise.all(times)).filter((time) => time !== undefined);
    failed += times.length - answered.length;
    return answered;
  };
  const RULE_PATH = `/apps/${APP}/score-rules/safe`;
  const slice = async (first: number) => {
    await send('PUT', RULE_PATH, RULE);
    await sql.query(
      `select add_job('score', $1, 'of' || n, '["safe", "s", ""]', $1 || ' safe') from generate_series($2::int, $3::int) n`,
      [APP, first, first + A_SLICE - 1],
    );
    const began = performance.now();
    const times = await work(async () => (await count(`from jobs where kind = 'score' and user_id like 'of%'`)) === 0);
    return { times, seconds: (performance.now() - began) / 1_000 };
  };
  const pause = async (seconds: number) => {
    await send('DELETE', RULE_PATH);
    const end = performance.now() + 1_000 * seconds;
    return work(() => Promise.resolve(performance.now() > end));
  };
  await send('PUT', RULE_PATH, RULE);
  await pause(5);
  const [withRule, without]: [number[][], number[][]] = [[], []];
  let seconds = 0;
  let today = { tokens: 0 };
  for (let first = 1; first <= SESSIONS; first += A_SLICE) {
    const scored = await slice(first);
    seconds += scored.seconds;
    [{ today }] = JSON.parse(await send('GET', `/apps/${APP}/score-rules`)) as [{ today: { tokens: number } }];
    withRule.push(scored.times);
    without.push(await pause(scored.seconds / 3));
    const halves = [withRule, without].map((slices) => median(slices.at(-1) ?? []).toFixed(1));
    console.error(
      `${first + A_SLICE - 1} in ${scored.seconds.toFixed(0)} s: p50 ${halves.join(' ms, without a rule ')} ms`,
    );
  }
  const p50 = (times: number[]) => median(times);
  const p99 = (slices: number[][]) =>
    quantile(
      slices.flat().toSorted((a, b) => a - b),
      0.99,
    );
  const ratio = median(withRule.map((times, n) => p50(times) / p50(without[n] ?? [])));
  const ms = (time: number) => `${time.toFixed(2)} ms`;
  report('sessions scored', `${SESSIONS}, ${(SESSIONS / seconds).toFixed(1)} a second`);
  report('invocations of users', `${withRule.flat().length} meanwhile, ${without.flat().length} without a rule`);
  report('that failed', `${failed}`, failed === 0);
  report('half of them within', `${ms(p50(withRule.flat()))}, without a rule ${ms(p50(without.flat()))}`);
  report('99 of 100 within', `${ms(p99(withRule))}, without a rule ${ms(p99(without))}`);
  report(`p50 of ${withRule.length} pairs, with to without`, ratio.toFixed(3), ratio <= 1 + NOISE);

  const { rows } = await sql.query<{ why: string; n: number }>(
    `select case when status <> 'NOT_EVALUATED' then status
            when explanation like '%budget.user.day.tokens%' then 'too dear'
            when explanation like '%could not be read%' then 'a lie' else 'a failure' end as why, count(*)::int as n
     from inspect.session_scores where rule_id = 'safe' group by 1 order by 1`,
  );
  const found = Object.fromEntries(rows.map(({ why, n }) => [why, n]));
  const used = (found['PASSED'] ?? 0) + (found['FAILED'] ?? 0) + (found['a lie'] ?? 0);
  const all = rows.reduce((sum, { n }) => sum + n, 0);
  report('what the rows say', JSON.stringify(found), all === SESSIONS && rows.length === 5);
  report(
    'tokens of the judge, of the rule, and what it may use',
    `${used * USAGE.total_tokens}, ${today.tokens}, ${MAX_TOKENS}`,
    today.tokens === used * USAGE.total_tokens && today.tokens <= MAX_TOKENS,
  );
  const exposed = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  const counted = (outcome: string) =>
    Number(new RegExp(`^agent_runtime_scores_total\\{outcome="${outcome}"\\} (\\d+)`, 'm').exec(exposed)?.[1]);
  const metrics = ['passed', 'failed', 'not_evaluated'].map(counted);
  const notEvaluated = all - (found['PASSED'] ?? 0) - (found['FAILED'] ?? 0);
  report(
    'the metrics: passed, failed, not evaluated',
    metrics.join(', '),
    metrics.join() === [found['PASSED'], found['FAILED'], notEvaluated].join(),
  );
  await sql.end();
} finally {
  await provider.close();
  await postgres.stop();
}
process.exit(isGood ? 0 : 1);
