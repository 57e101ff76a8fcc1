import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { INPUT_LIMITS } from '../src/core/limits.ts';

const PAGE = fileURLToPath(new URL('security.md', import.meta.url));

/** The page `docs/security.md` with the bounds of all that comes in; what people wrote around the table stays. */
export const securityPage = (): string =>
  readFileSync(PAGE, 'utf8').replace(/\| what comes in \|[^]*?\n\n/, () => `${limitsTable()}\n\n`);

type Limit = { bytes?: number | string; values?: number; depth?: number; count?: number; why: string };

const limitsTable = () =>
  [
    '| what comes in | bytes | values | levels | number | why, and of what |',
    '|---|---|---|---|---|---|',
    ...Object.entries(INPUT_LIMITS).map(([name, { bytes, values, depth, count, why }]: [string, Limit]) => {
      const what = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^mcp/, 'MCP');
      const size = typeof bytes === 'string' ? bytes.replace(/[A-Z_]+/, '`$&`') : bytes?.toLocaleString('en');
      const cells = [what, size, ...[values, depth, count].map((limit) => limit?.toLocaleString('en')), why];
      return `| ${cells.map((cell) => cell ?? '').join(' | ')} |`;
    }),
  ].join('\n');

if (import.meta.main) writeFileSync(PAGE, securityPage());
