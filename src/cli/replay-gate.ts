import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Replay } from '../invocations/replay/replay.ts';
import { type Api, sessionPath, withApi } from './api.ts';
import { cannotRun, CommandError, print, toBar } from './output.ts';
import type { ReplayOptions } from './replay.ts';
import {
  type GateReport,
  listRefused,
  type Outcome,
  type Sampled,
  toExitCode,
  toJunit,
  toText,
} from './replay-report.ts';

export interface GateOptions extends ReplayOptions {
  since: string;
  sample: string;
  live?: string;
  budget?: string;
  junit?: string;
}

/** Number of concurrent replays. The service allows one caller no more. */
const PARALLEL = 2;
/** Pause before a retry after 429 or 503, in milliseconds. */
const RETRY_MS = 1_000;
const MAX_RETRIES = 90;
const MINUTES: Record<string, number> = { m: 1, h: 60, d: 1_440 };

/**
 * Replays a sample of stored invocations. Ctrl-C stops; the command then reports those that ended.
 * @returns the exit code: 0 no differences, 1 a difference, 2 a replay failed, 3 a replay could not be compared
 */
export const runGate = (options: GateOptions): Promise<number> =>
  withApi(options, async (api) => {
    const { query, share, budget } = readOptions(options);
    const stop = new AbortController();
    const onSignal = () => stop.abort();
    process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
    try {
      const start = performance.now();
      const path = `/apps/${encodeURIComponent(options.app)}/invocation-sample?${query.toString()}`;
      const { items } = await api.send<{ items: Sampled[] }>('GET', path, undefined, stop.signal);
      if (items.length === 0)
        throw new CommandError(`No invocation of ${options.app} of the last ${options.since} has a tape.`, 2);
      const live = Math.ceil(share * items.length);
      const outcomes = await replayAll(api, options, { items, live, budget }, stop.signal);
      const seconds = (performance.now() - start) / 1000;
      return write({ app: options.app, chosen: items.length, seconds, outcomes }, options);
    } finally {
      process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    }
  }).catch(cannotRun);

function readOptions({ since, sample, live, budget, model, tools }: GateOptions) {
  if (model === 'live' || tools === 'live')
    throw new CommandError(
      'A sample is replayed with what is stored: --live chooses of how many the model is asked.',
      2,
    );
  const [, count, unit = ''] = /^(\d+)([mhd])$/.exec(since) ?? [];
  if (count === undefined) throw new CommandError('--since is a time such as 30m, 12h or 7d.', 2);
  const share = live === undefined ? 0 : Number(live.replace(/%$/, '')) / 100;
  if (!(share >= 0 && share <= 1)) throw new CommandError('--live is a share such as 5%.', 2);
  if (share > 0 && !/^\d+$/.test(budget ?? ''))
    throw new CommandError('--live needs --budget: the tokens that its model calls may use together.', 2);
  const minutes = Number(count) * (MINUTES[unit] ?? 1);
  return { query: new URLSearchParams({ minutes: `${minutes}`, limit: sample }), share, budget: Number(budget ?? 0) };
}

function write(report: GateReport, { json, junit }: GateOptions): number {
  print(json ? JSON.stringify(report) : toText(report));
  if (junit !== undefined) writeFileSync(junit, toJunit(report));
  return toExitCode(report);
}

/**
 * Replays the first `live` items with the live model, one after the other, because they share its token budget; the
 * others without it, in parallel.
 */
async function replayAll(
  api: Api,
  options: GateOptions,
  { items, live, budget }: { items: Sampled[]; live: number; budget: number },
  signal: AbortSignal,
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const remainder = { tokens: budget };
  const isShown = process.stderr.isTTY;
  const work = async (some: Iterable<Sampled>, isLive: boolean) => {
    for (const item of some) {
      if (signal.aborted) return;
      const outcome = await replayOne(api, options, item, isLive ? remainder : undefined, signal);
      if (outcome) outcomes.push(outcome);
      const share = outcomes.length / items.length;
      if (isShown) process.stderr.write(`\r${toBar(share)} ${outcomes.length}/${items.length}`);
    }
  };
  await work(items.slice(0, live), true);
  // All workers share one iterator, so that each invocation is replayed once.
  const others = items.slice(live).values();
  await Promise.all(Array.from({ length: PARALLEL }, () => work(others, false)));
  if (isShown) process.stderr.write('\n');
  return outcomes;
}

/** Replays an invocation, with the live model if there is a token budget. @returns `undefined` if stopped meanwhile */
async function replayOne(
  api: Api,
  options: GateOptions,
  item: Sampled,
  budget: { tokens: number } | undefined,
  signal: AbortSignal,
): Promise<Outcome | undefined> {
  const { app, systemPrompt } = options;
  const path = `${sessionPath({ app, user: item.userId }, item.sessionId)}/invocations/${encodeURIComponent(item.id)}`;
  const body = {
    ...(budget && { modelExecutionMode: 'live', maxLiveTokens: budget.tokens }),
    ...(systemPrompt !== undefined && { harness: { system_prompt: systemPrompt } }),
  };
  const outcome = { ...item, isLive: budget !== undefined };
  for (let tries = 0; ; tries += 1) {
    try {
      const result = await api.send<Replay>('POST', `${path}/replay`, body, signal);
      if (budget) budget.tokens = Math.max(budget.tokens - (result.liveTokens ?? 0), 0);
      const refused = listRefused(result, options);
      return { ...outcome, ...(refused.length > 0 && { refused }), result };
    } catch (error) {
      if (signal.aborted) return undefined;
      // 429 and 503: refused before the replay. An interrupted live replay is not retried: it may have used its budget.
      const { status, message } = error as CommandError;
      if (tries < MAX_RETRIES && (status === 429 || (status === 503 && !budget)))
        await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
      else {
        if (budget && !(status !== undefined && status < 500)) budget.tokens = 0;
        return { ...outcome, failure: message };
      }
    }
  }
}
