import { readdir } from 'node:fs/promises';
import { join, parse } from 'node:path';
import { ConfigError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import { importFile } from './import-file.ts';

export interface MetricTurn {
  question: string;
  answer: string;
  toolCalls: { name: string; args: JsonObject }[];
}

/** A custom evaluation metric. It scores each turn from 0 to 1; the score of an eval case is the mean of its turns. */
export interface OwnMetric {
  /** A sentence for people about what the metric measures. */
  description: string;
  /** Null: the turn cannot be scored. `expected` is undefined if the eval case has no expected conversation. */
  score(actual: MetricTurn, expected: MetricTurn | undefined): number | null | Promise<number | null>;
}

/** Removes private data from an eval case made from a user's session. The case has the JSON form of the API. */
export type Mask = (evalCase: JsonObject) => JsonObject | Promise<JsonObject>;

export interface EvalModule {
  /** Custom metrics by the name of their file. */
  metrics: ReadonlyMap<string, OwnMetric>;
  mask?: Mask;
}

/** Gives the export `metric` of an `evals/<metric>.ts` its type; returns its argument. */
export const defineMetric = (metric: OwnMetric): OwnMetric => metric;
/** Gives the export `mask` of a file in `evals/` its type; returns its argument. */
export const defineMask = (mask: Mask): Mask => mask;

const METRIC_NAME = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Loads the metrics and the mask of an application's folder `evals/`; none if the folder is missing.
 * @throws {ConfigError} that names the file, if a file cannot be loaded or exports neither a metric nor a mask
 */
export async function loadEvalModule(directory: string): Promise<EvalModule> {
  const folder = join(directory, 'evals');
  const files = await readdir(folder).catch(() => []);
  const metrics = new Map<string, OwnMetric>();
  let ownMask: Mask | undefined;
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
    if (ownMask) throw new ConfigError(`${path}: the application has a \`mask\` already.`);
    ownMask = mask;
  }
  return { metrics, ...(ownMask ? { mask: ownMask } : {}) };
}
