import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { processEnvironment, readConfig } from './core/config.ts';
import { createLog } from './core/log.ts';
import { HARNESS_APP } from './core/session.ts';
import { type Gate, toExitCode, toJunit, toTable } from './evals/report.ts';
import { parseSelectors } from './evals/selectors.ts';
import type { CaseSummary, RunComparison } from './evals/summary.ts';
import { DEFAULT_TEST_CONFIG, readTestConfig } from './evals/test-config.ts';
import { startRuntime } from './runtime.ts';

const HELP = `Runs evaluation sets against the agent as it is deployed, with the settings of the service.

  npm run eval -- <set>[:case[,case…]] …

  --app <name>            application [${HARNESS_APP}]
  --config <file>         a test_config.json with the metrics
  --trials <n>            how often each case is run [1]
  --threshold <share>     share of its trials that must pass for a case to pass [1]
  --parallelism <n>       cases at once
  --baseline <run>        an earlier run to compare with; a regression fails
  --junit <file>          writes a report for CI
  --allow-not-evaluated   cases of which no metric says anything do not fail

Exit code: 0 all cases passed, 1 a case failed or was not evaluated, 2 they could not be run.
`;
/** Width of the progress bar, characters. */
const BAR = 30;

process.exitCode = await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  return 2;
});

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      app: { type: 'string', default: HARNESS_APP },
      config: { type: 'string' },
      trials: { type: 'string', default: '1' },
      threshold: { type: 'string', default: '1' },
      parallelism: { type: 'string' },
      baseline: { type: 'string' },
      junit: { type: 'string' },
      'allow-not-evaluated': { type: 'boolean', default: false },
      help: { type: 'boolean' },
    },
  });
  if (values.help || positionals.length === 0) {
    process.stdout.write(HELP);
    return values.help ? 0 : 2;
  }
  const gate: Gate = { threshold: Number(values.threshold), allowNotEvaluated: values['allow-not-evaluated'] };
  if (!(gate.threshold >= 0 && gate.threshold <= 1)) throw new Error('--threshold is a number from 0 to 1.');
  const file: unknown = values.config ? JSON.parse(readFileSync(values.config, 'utf8')) : DEFAULT_TEST_CONFIG;
  const { metrics, userSimulator } = readTestConfig(file);
  const wanted = {
    evalMetrics: metrics,
    ...(userSimulator ? { userSimulatorConfig: userSimulator } : {}),
    trials: Number(values.trials),
    ...(values.parallelism ? { parallelism: Number(values.parallelism) } : {}),
  };
  const selected = [...parseSelectors(positionals)];
  if (values.junit && selected.length > 1) throw new Error('--junit takes one set.');
  return withService(async (api) => {
    let exitCode = 0;
    for (const [evalSetId, evalCaseIds] of selected) {
      const runs = `/dev/apps/${encodeURIComponent(values.app)}/eval-runs`;
      const { runId } = await api.send<{ runId: string }>('POST', runs, { evalSetId, evalCaseIds, ...wanted });
      await follow(api, `${runs}/${runId}`);
      const query = values.baseline ? `?baseline=${encodeURIComponent(values.baseline)}` : '';
      const summary = await api.send<Summary>('GET', `${runs}/${runId}/summary${query}`);
      const { cases, comparison } = summary;
      console.log(`${evalSetId}, run ${runId}\n\n${toTable(cases, gate, comparison)}\n`);
      if (values.junit) writeFileSync(values.junit, toJunit(evalSetId, cases, gate));
      exitCode = Math.max(exitCode, toExitCode(cases, gate, comparison));
    }
    return exitCode;
  });
}

interface Summary {
  cases: CaseSummary[];
  comparison?: RunComparison;
}

/** Requests to the service that this command runs. */
interface Api {
  /** @throws Error with the service's own words for any answer that is no success. */
  send<Body>(method: string, path: string, body?: unknown): Promise<Body>;
  open(path: string): Promise<Response>;
}

/** Runs the service on loopback, behind a key that nobody else knows, as long as `work` takes. */
async function withService<Result>(work: (api: Api) => Promise<Result>): Promise<Result> {
  const key = randomUUID();
  const own = { HOST: '127.0.0.1', PORT: '0', DEV_UI: 'true', AUTH_MODE: 'key', RUNTIME_API_KEYS: key };
  const config = readConfig({ ...processEnvironment(), ...own, CRONJOBS: 'false' });
  const runtime = await startRuntime({ config, log: createLog(config.LOG_LEVEL), version: 'eval' });
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const open = (path: string) => fetch(`${runtime.url}${path}`, { headers });
  const send = async <Body>(method: string, path: string, body?: unknown): Promise<Body> => {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(`${runtime.url}${path}`, { method, headers, ...sent });
    const answer = (await response.json()) as { detail?: unknown };
    if (response.ok) return answer as Body;
    throw new Error(typeof answer.detail === 'string' ? answer.detail : JSON.stringify(answer.detail));
  };
  try {
    return await work({ send, open });
  } finally {
    await runtime.close();
  }
}

/** Waits for the end of a run and shows how far it is, where somebody looks. */
async function follow(api: Api, path: string): Promise<void> {
  const { body } = await api.open(`${path}/stream`);
  let text = '';
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const frames = (text + chunk).split('\n\n');
    text = frames.pop() ?? '';
    const last = frames.findLast((frame) => frame.startsWith('data: '));
    if (last && process.stderr.isTTY) showProgress(JSON.parse(last.slice('data: '.length)) as Progress);
  }
  if (process.stderr.isTTY) process.stderr.write('\n');
}

interface Progress {
  counts: Record<'total' | 'waiting' | 'running' | 'passed' | 'failed' | 'errors', number>;
}

function showProgress({ counts: { total, waiting, running, passed, failed, errors } }: Progress): void {
  const ended = total - waiting - running;
  const bar = '█'.repeat(Math.floor((ended / total) * BAR)).padEnd(BAR, '░');
  const figures = `${ended}/${total}  ${passed} passed, ${failed} failed, ${errors} broke off`;
  process.stderr.write(`\r${bar} ${figures}`);
}
