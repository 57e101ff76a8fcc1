import { readdir } from 'node:fs/promises';
import { join, parse } from 'node:path';
import { ConfigError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import { importFile } from './import-file.ts';

/** One turn as a metric of your own sees it. */
export interface MetricTurn {
  question: string;
  answer: string;
  toolCalls: { name: string; args: JsonObject }[];
}

/** A metric of your own: the score of each turn, from 0 to 1, and of a case the mean of its turns. */
export interface OwnMetric {
  /** A sentence for people on the quality that it measures. */
  description: string;
  /** Null: the turn cannot be scored. `expected` is absent where a case has no expected conversation. */
  score(actual: MetricTurn, expected: MetricTurn | undefined): number | null | Promise<number | null>;
}

/** Takes out of an eval case, as it goes over the wire, what must not be copied from sessions of users. */
export type Mask = (evalCase: JsonObject) => JsonObject | Promise<JsonObject>;

/** The exports of the files in `evals/` of an application. */
export interface EvalModule {
  /** By the names of their files. */
  metrics: ReadonlyMap<string, OwnMetric>;
  mask?: Mask;
}

/** Says what an `evals/<metric>.ts` exports as `metric`; returns it as it is. */
export const defineMetric = (metric: OwnMetric): OwnMetric => metric;
/** Says what a file in `evals/` exports as `mask`; returns it as it is. */
export const defineMask = (mask: Mask): Mask => mask;

const METRIC_NAME = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Loads the files in `evals/` of an application that the operator names; none where there is no such folder.
 * @throws {ConfigError} that names the file, for one that cannot be loaded, or exports neither a metric nor the mask.
 */
export async function loadEvalModule(directory: string): Promise<EvalModule> {
  const folder = join(directory, 'evals');
  const files = await readdir(folder).catch(() => []);
  const metrics = new Map<string, OwnMetric>();
  let found: Mask | undefined;
  for (const file of files.filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts')).sort()) {
    const path = join(folder, file);
    const { metric, mask } = (await importFile(path)) as { metric?: OwnMetric; mask?: Mask };
    const name = parse(file).name;
    if (metric === undefined && mask === undefined)
      throw new ConfigError(`${path}: it exports neither \`metric\` nor \`mask\`.`);
    if (metric !== undefined) {
      if (!METRIC_NAME.test(name)) throw new ConfigError(`${path}: \`${name}\` cannot be the name of a metric.`);
      if (typeof metric.score !== 'function' || typeof metric.description !== 'string')
        throw new ConfigError(`${path}: \`metric\` needs a description and a function \`score\`.`);
      metrics.set(name, metric);
    }
    if (mask === undefined) continue;
    if (typeof mask !== 'function') throw new ConfigError(`${path}: \`mask\` is no function.`);
    if (found) throw new ConfigError(`${path}: the application has a \`mask\` already.`);
    found = mask;
  }
  return { metrics, ...(found ? { mask: found } : {}) };
}
