import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { INPUT_LIMITS } from '../src/core/limits.ts';

const PAGE = fileURLToPath(new URL('security.md', import.meta.url));

/** The page `docs/security.md` with the bounds of all that comes in; what people wrote around the list stays. */
export const securityPage = (): string =>
  readFileSync(PAGE, 'utf8').replace(/(?:^- [\w ]+: \S.* \(.+\)\n)+/m, () => `${limitsList()}\n`);

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

if (import.meta.main) writeFileSync(PAGE, securityPage());
