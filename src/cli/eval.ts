import { writeFileSync } from 'node:fs';
import {
  type CaseResult,
  type CaseSummary,
  type Gate,
  isThrough,
  NOT_COMPARED,
  type RunComparison,
  toComparisonCode,
  toExitCode,
  toJunit,
  toMismatches,
  toTable,
} from './eval-report.ts';
import { DEFAULT_TEST_CONFIG, parseSelectors, readTestConfig } from './test-config.ts';
import { type Api, type GlobalOptions, readFrames, withApi } from './api.ts';
import { cannotRun, CommandError, print, readJsonFile, toBar } from './output.ts';

interface EvalOptions extends GlobalOptions {
  config?: string;
  trials: string;
  threshold: string;
  parallelism?: string;
  model?: 'stored' | 'live';
  tools?: 'stored' | 'live';
  baseline?: string;
  junit?: string;
  allowNotEvaluated?: boolean;
}

interface EvalRun {
  runId: string;
  evalSetId: string;
  evalSetResultId: string;
  status: string;
  counts: Record<'total' | 'waiting' | 'running' | 'passed' | 'failed' | 'errors', number>;
}

interface Summary {
  cases: CaseSummary[];
  comparison?: RunComparison;
}

const runsPath = ({ app }: GlobalOptions) => `/dev/apps/${encodeURIComponent(app)}/eval-runs`;

/**
 * Runs evaluation sets. @returns the exit code: 0 if all cases passed, 1 if one failed or got worse, 3 if a part of a
 * baseline was not compared
 * @throws {CommandError} with exit code 2 if a set cannot be run
 */
export async function runSets(sets: string[], options: EvalOptions): Promise<number> {
  const gate: Gate = { threshold: Number(options.threshold), allowNotEvaluated: options.allowNotEvaluated ?? false };
  if (!(gate.threshold >= 0 && gate.threshold <= 1)) throw new CommandError('--threshold is a number from 0 to 1.', 2);
  if (!isCount(options.trials)) throw new CommandError('--trials is a number from 1 on.', 2);
  if (!isCount(options.parallelism ?? '1')) throw new CommandError('--parallelism is a number from 1 on.', 2);
  const work = async () => {
    const file: unknown = options.config ? readJsonFile(options.config) : DEFAULT_TEST_CONFIG;
    const request = {
      ...readTestConfig(file),
      trials: Number(options.trials),
      parallelism: options.parallelism && Number(options.parallelism),
      modelExecutionMode: options.model,
      toolExecutionMode: options.tools,
    };
    const selected = [...parseSelectors(sets)];
    if (options.junit && selected.length > 1) throw new CommandError('--junit takes one set.', 2);
    return withApi(options, async (api) => {
      const codes: number[] = [];
      for (const [evalSetId, evalCaseIds] of selected)
        codes.push(await runSet(api, options, gate, { evalSetId, evalCaseIds, ...request }));
      return codes.includes(1) ? 1 : Math.max(0, ...codes);
    });
  };
  return work().catch(cannotRun);
}

const isCount = (text: string) => /^[1-9]\d{0,5}$/.test(text);

async function runSet(
  api: Api,
  options: EvalOptions,
  gate: Gate,
  request: { evalSetId: string; evalCaseIds: string[]; [member: string]: unknown },
): Promise<number> {
  const runs = runsPath(options);
  const { runId } = await api.send<{ runId: string }>('POST', runs, request);
  const run = await follow(api, `${runs}/${runId}`);
  const { cases, comparison: whole } = await getSummary(api, options, runId, options.baseline);
  const { evalCaseIds } = request;
  // Cases of the baseline that this run did not select do not count as missing.
  const isWanted = (evalId: string) => evalCaseIds.length === 0 || evalCaseIds.includes(evalId);
  const comparison = whole && { ...whole, missing: whole.missing.filter(isWanted) };
  if (options.json) print(JSON.stringify({ evalSetId: request.evalSetId, runId, cases, comparison }));
  else {
    const isRed = !cases.every((one) => isThrough(one, gate));
    const mismatches = isRed && run ? await findMismatches(api, options, run) : undefined;
    print(`${request.evalSetId}, run ${runId}\n\n${toTable(cases, gate, comparison, mismatches)}\n`);
  }
  if (options.junit) writeFileSync(options.junit, toJunit(request.evalSetId, cases, gate));
  return toExitCode(cases, gate, comparison);
}

/** Maximum number of trials of a run whose calls are read; each may have 1 MiB. */
const MAX_READ = 100;

async function findMismatches(
  api: Api,
  { app }: GlobalOptions,
  { evalSetResultId, counts: { total } }: EvalRun,
): Promise<Map<string, string[]> | undefined> {
  if (total > MAX_READ) return undefined;
  const path = `/dev/apps/${encodeURIComponent(app)}/eval-results/${encodeURIComponent(evalSetResultId)}`;
  return toMismatches((await api.send<{ evalCaseResults: CaseResult[] }>('GET', path)).evalCaseResults);
}

const getSummary = (api: Api, options: GlobalOptions, runId: string, baseline?: string): Promise<Summary> => {
  const query = baseline ? `?baseline=${encodeURIComponent(baseline)}` : '';
  return api.send<Summary>('GET', `${runsPath(options)}/${encodeURIComponent(runId)}/summary${query}`);
};

/** Exports a set in ADK's file format. Standard error names members left out because an ADK version refuses them. */
export const exportSet = (set: string, options: GlobalOptions & { out?: string }): Promise<void> =>
  withApi(options, async (api) => {
    const path = `/dev/apps/${encodeURIComponent(options.app)}/eval-sets/${encodeURIComponent(set)}/file`;
    const text = await (await api.open('GET', path)).text();
    const { dropped } = JSON.parse(text) as { dropped?: string[] };
    if (dropped) console.error(`The file lacks what some version of ADK refuses: ${dropped.join(', ')}.`);
    if (options.out === undefined) print(text);
    else writeFileSync(options.out, `${text}\n`);
  }).catch(cannotRun);

/** Compares evaluation runs. @returns the exit code: 1 for a regression, 3 if a baseline was not all compared */
export const compareRuns = (run: string, baseline: string, options: GlobalOptions): Promise<number> =>
  withApi(options, async (api) => {
    const { cases, comparison } = await getSummary(api, options, run, baseline);
    if (options.json) print(JSON.stringify(comparison));
    else print(toTable(cases, { threshold: 1, allowNotEvaluated: true }, comparison));
    return comparison ? toComparisonCode(comparison) : NOT_COMPARED;
  }).catch(cannotRun);

/** Waits until an evaluation run ends, and returns it. Shows its progress if standard error is a terminal. */
async function follow(api: Api, path: string): Promise<EvalRun | undefined> {
  let last: EvalRun | undefined;
  for await (const run of readFrames<EvalRun>(await api.open('GET', `${path}/stream`))) {
    last = run;
    if (process.stderr.isTTY) showProgress(run.counts);
  }
  if (process.stderr.isTTY) process.stderr.write('\n');
  return last;
}

function showProgress({ total, waiting, running, passed, failed, errors }: EvalRun['counts']): void {
  const ended = total - waiting - running;
  const figures = `${ended}/${total}  ${passed} passed, ${failed} failed, ${errors} broke off`;
  process.stderr.write(`\r${toBar(ended / total)} ${figures}`);
}
