import { choiceOr, documented, integer, rangeText, textOr } from './setting-schemas.ts';

const PORTS: [number, number] = [0, 65_535];

/** What is logged, and where metrics and traces of the process can be read. */
export const OBSERVABILITY = {
  LOG_LEVEL: choiceOr(
    'warn',
    ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'],
    'What is logged, as JSON lines on standard error.',
  ),
  METRICS_PORT: documented(
    integer(PORTS).optional(),
    'Port of its own for `/metrics`, in the text format of Prometheus; 0 takes a free one. It has no login.',
    rangeText(PORTS),
    'no such port',
  ),
  METRICS_HOST: textOr(
    '127.0.0.1',
    'Address to listen on for `/metrics`: one that only the collector of metrics reaches.',
  ),
};
