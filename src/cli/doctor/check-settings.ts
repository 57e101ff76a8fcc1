import type { Config } from '../../config/config.ts';
import { type Finding, withFaults } from './finding.ts';

/** Settings that are right each by itself and contradict each other. */
export function checkSettings(config: Config): Finding[] {
  const faults: [isFault: boolean, text: string][] = [
    [
      config.MODEL_TIMEOUT_MS > config.INVOCATION_TIMEOUT_MS,
      'MODEL_TIMEOUT_MS is longer than INVOCATION_TIMEOUT_MS, which ends the invocation first; lower MODEL_TIMEOUT_MS.',
    ],
    [
      config.DATABASE_LOCK_TIMEOUT_MS > config.DATABASE_STATEMENT_TIMEOUT_MS,
      'DATABASE_LOCK_TIMEOUT_MS is longer than DATABASE_STATEMENT_TIMEOUT_MS, which ends the wait first; lower it.',
    ],
    [
      config.METRICS_PORT !== undefined && config.METRICS_PORT !== 0 && config.METRICS_PORT === config.PORT,
      `METRICS_PORT is PORT, ${config.PORT}; choose another METRICS_PORT.`,
    ],
    [
      config.MAX_EVENT_BYTES > config.MAX_SESSION_BYTES,
      'MAX_EVENT_BYTES is larger than MAX_SESSION_BYTES, which no session can then hold; lower MAX_EVENT_BYTES.',
    ],
  ];
  return withFaults(
    'settings',
    faults.filter(([isFault]) => isFault).map(([, text]) => text),
    'no contradiction',
  );
}
