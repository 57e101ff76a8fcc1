import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { INSTRUMENTS, type Instrument, toPrometheusName } from '../src/observability/metrics/instruments.ts';

const PAGE = fileURLToPath(new URL('operations.md', import.meta.url));

/** The page `docs/operations.md` with the metrics that there are; what people wrote around the list stays. */
export const operationsPage = (): string =>
  readFileSync(PAGE, 'utf8').replace(/(?:^- `\w+`.*\n)+/m, () => `${metricsList()}\n`);

const metricsList = () =>
  Object.values(INSTRUMENTS)
    .map((instrument: Instrument) => {
      const { labels, description } = instrument;
      const names = labels.map((label) => `\`${label}\``).join(', ');
      return `- \`${toPrometheusName(instrument)}\`${names && ` (${names})`}: ${description}`;
    })
    .join('\n');

if (import.meta.main) writeFileSync(PAGE, operationsPage());
