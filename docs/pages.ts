import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PROVIDERS } from '../src/agent/providers/index.ts';
import { EXIT_CODES } from '../src/cli/output.ts';
import { ERROR_CODES, type ErrorAdvice } from '../src/core/error-codes.ts';
import { INPUT_LIMITS } from '../src/core/limits.ts';
import { listMetrics, toPrometheusLabel, toPrometheusName } from '../src/observability/metrics/instruments.ts';
import { ERROR_STATUSES, VALIDATION_TYPES } from '../src/platform/http/operation/request-errors.ts';
import { permissionTables } from './permissions.ts';

/*
 * Parts of pages that are made from the code. A page has each between two marks; what people wrote around them stays:
 *
 *   <!-- made: limits -->
 *   …
 *   <!-- end -->
 */

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PART = /(?<=^<!-- made: (.+) -->\n)[^]*?(?=^<!-- end -->$)/gm;

/** Makes the text of a part. `about` is what its mark says after the name. */
export type Parts = Record<string, (about: string) => string>;

const RETRIES: Record<ErrorAdvice['retry'], string> = {
  no: 'The same request fails again.',
  again: 'A retry may succeed at once.',
  later: 'A retry may succeed after a while.',
};

const adviceList = (advice: Record<string | number, ErrorAdvice>) =>
  Object.entries(advice)
    .map(
      ([code, { meaning, retry, remedy, isRefusal }]) =>
        `- \`${code}\`: ${meaning} *${RETRIES[retry]}* ${remedy}${isRefusal ? ' The prompt is not stored.' : ''}`,
    )
    .join('\n');

const sentenceList = (sentences: Record<string | number, string>) =>
  Object.entries(sentences)
    .map(([name, sentence]) => `- \`${name}\`: ${sentence}`)
    .join('\n');

const providerExamples = () =>
  PROVIDERS.flatMap(({ name, examples }) =>
    examples.map((settings) => `$ MODEL_PROVIDER=${name} ${settings} npm start`),
  ).join('\n');

const metricsList = () =>
  listMetrics()
    .map(([name, { unit, labels, help }]) => {
      const names = Object.keys(labels)
        .map((label) => `\`${toPrometheusLabel(label)}\``)
        .join(', ');
      return `- \`${toPrometheusName(name, unit)}\`${names && ` (${names})`}: ${help}`;
    })
    .join('\n');

type Limit = { bytes?: number | string; values?: number; depth?: number; count?: number; why: string };

/** The nouns of what is counted. */
const COUNTED: Partial<Record<keyof typeof INPUT_LIMITS, string>> = {
  waitingFramesOfASocket: 'frames',
  controlFramesOfASocket: 'frames',
  liveSession: 'frames',
  mcpMessage: 'messages',
  mcpConnection: 'messages',
  mcpRequests: 'requests',
  mcpToolList: 'tools',
  mcpToolResult: 'blocks',
  modelLiveMessage: 'messages',
};

const show = (value: number) => value.toLocaleString('en');

const limitsList = () =>
  Object.entries(INPUT_LIMITS)
    .map(([name, { bytes, values, depth, count, why }]: [string, Limit]) => {
      const what = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^mcp/, 'MCP');
      const size = typeof bytes === 'string' ? bytes.replace(/[A-Z_]+/, '`$&`') : bytes && `${show(bytes)} bytes`;
      const bounds = [
        size,
        values && `${show(values)} values`,
        depth && `${depth} levels`,
        count && `${show(count)} ${COUNTED[name as keyof typeof INPUT_LIMITS] ?? ''}`,
      ];
      return `- ${what}: ${bounds.filter(Boolean).join(', ')} (${why})`;
    })
    .join('\n');

/** All parts but those of `members.ts`, whose compiler takes seconds to start. */
export const PARTS: Parts = {
  examples: () => ['```console', providerExamples(), '```'].join('\n'),
  metrics: metricsList,
  limits: limitsList,
  'codes of invocations': () => adviceList(ERROR_CODES),
  statuses: () => adviceList(ERROR_STATUSES),
  'types of 422': () => sentenceList(VALIDATION_TYPES),
  'exit codes': () => sentenceList(EXIT_CODES),
  permissions: permissionTables,
};

/** The pages with parts that these functions make, by path, as they have to be. */
export const filledPages = (parts: Parts): Map<string, string> =>
  new Map(
    globSync('docs/*.md', { cwd: ROOT })
      .toSorted()
      .flatMap((page) => {
        const text = readFileSync(join(ROOT, page), 'utf8');
        let isMade = false;
        const filled = text.replaceAll(PART, (present, mark: string) => {
          const name = Object.keys(parts).find((each) => mark === each || mark.startsWith(`${each}:`));
          isMade ||= name !== undefined;
          return name === undefined ? present : `\n${parts[name]?.(mark.slice(name.length + 1).trim())}\n\n`;
        });
        return isMade ? [[page, filled] as const] : [];
      }),
  );

/** Names of all marks in the pages. */
export const listMarks = (): string[] =>
  globSync('docs/*.md', { cwd: ROOT }).flatMap((page) =>
    [...readFileSync(join(ROOT, page), 'utf8').matchAll(PART)].map(([, mark = '']) => mark),
  );

export function writePages(parts: Parts): void {
  for (const [page, text] of filledPages(parts)) writeFileSync(join(ROOT, page), text);
}
