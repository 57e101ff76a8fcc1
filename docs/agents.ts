import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PROVIDERS } from '../src/agent/providers/index.ts';

const PAGE = fileURLToPath(new URL('agents.md', import.meta.url));

/** The page `docs/agents.md` with the examples of all providers; what people wrote around them stays. */
export const agentsPage = (): string =>
  readFileSync(PAGE, 'utf8').replace(/(?:^\$ MODEL_PROVIDER=.*npm start\n)+/m, () =>
    PROVIDERS.flatMap(({ name, examples }) =>
      examples.map((settings) => `$ MODEL_PROVIDER=${name} ${settings} npm start\n`),
    ).join(''),
  );

if (import.meta.main) writeFileSync(PAGE, agentsPage());
