import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { listMetrics, toPrometheusLabel, toPrometheusName } from '../src/observability/metrics/instruments.ts';

const PAGE = fileURLToPath(new URL('operations.md', import.meta.url));

/** The page `docs/operations.md` with the metrics that there are; what people wrote around the list stays. */
export const operationsPage = (): string =>
  readFileSync(PAGE, 'utf8').replace(/(?:^- `\w+`.*\n)+/m, () => `${metricsList()}\n`);

const metricsList = () =>
  listMetrics()
    .map(([name, { unit, labels, help }]) => {
      const names = Object.keys(labels)
        .map((label) => `\`${toPrometheusLabel(label)}\``)
        .join(', ');
      return `- \`${toPrometheusName(name, unit)}\`${names && ` (${names})`}: ${help}`;
    })
    .join('\n');

if (import.meta.main) writeFileSync(PAGE, operationsPage());
