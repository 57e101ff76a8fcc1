import { styleText } from 'node:util';
import { describeAnonymous } from '../../config/access.ts';
import { type Config, readConfig } from '../../process/config.ts';
import { processEnvironment } from '../../config/environment.ts';
import { checkAccess } from './check-access.ts';
import { checkAgents, checkModel } from './check-agents.ts';
import { checkCollector } from './check-collector.ts';
import { checkDatabase } from './check-database.ts';
import { checkContainer, checkDisk, checkPorts } from './check-machine.ts';
import { isShorterThanStatements, SHORT_LEASE } from '../../invocations/settings.ts';
import { failing, fault, type FaultRule, type Finding, toFindings, toReason, warning } from './finding.ts';

const MARKS = { ok: ['green', '✓'], fault: ['red', '✗'], skipped: ['gray', '–'], warning: ['yellow', '!'] } as const;

/** Checks this machine and the settings, and prints the findings. @returns the exit code: 1 if there is a fault */
export async function doctor({ json }: { json?: boolean }): Promise<number> {
  const findings = await examine(processEnvironment());
  if (json) console.log(JSON.stringify(findings));
  else {
    for (const { check, status, detail } of findings) {
      const [colour, mark] = MARKS[status];
      console.log(`${styleText(colour, mark, { stream: process.stdout })} ${check.padEnd(9)}  ${detail}`);
    }
  }
  return findings.some(({ status }) => status === 'fault') ? 1 : 0;
}

/** The checks change nothing and call no model. @param cgroup directory of the container's limits (cgroup v2) */
export async function examine(
  environment: Record<string, string | undefined>,
  { cgroup }: { cgroup?: string } = {},
): Promise<Finding[]> {
  const config = read(environment);
  if (Array.isArray(config)) return [...config, ...checkContainer(cgroup)];
  const checks = [checkAccess, checkDatabase, model, checkAgents, checkCollector, checkPorts, checkDisk].map((check) =>
    check(config),
  );
  return [...checkSettings(config), ...(await Promise.all(checks)).flat(), ...checkContainer(cgroup)];
}

function read(environment: Record<string, string | undefined>): Config | Finding[] {
  try {
    return readConfig(environment);
  } catch (error) {
    return toReason(error)
      .split('\n')
      .map((line) => fault('settings', line));
  }
}

/** An invalid choice of the model becomes a fault instead of an exception. */
const model = (config: Config): Promise<Finding> =>
  checkModel(config).catch((error: unknown) => fault('model', toReason(error)));

/** Finds settings that are valid alone but contradict each other. */
function checkSettings(config: Config): Finding[] {
  const rules: FaultRule[] = [
    [
      config.MODEL_TIMEOUT_MS > config.INVOCATION_TIMEOUT_MS,
      'MODEL_TIMEOUT_MS is longer than INVOCATION_TIMEOUT_MS, which ends the invocation first; lower MODEL_TIMEOUT_MS.',
    ],
    [
      config.METRICS_PORT !== undefined && config.METRICS_PORT !== 0 && config.METRICS_PORT === config.PORT,
      `METRICS_PORT is PORT, ${config.PORT}; choose another METRICS_PORT.`,
    ],
    [isShorterThanStatements(config), SHORT_LEASE],
    [
      config.MAX_EVENT_BYTES > config.MAX_SESSION_BYTES,
      'MAX_EVENT_BYTES is larger than MAX_SESSION_BYTES, which no session can then hold; lower MAX_EVENT_BYTES.',
    ],
  ];
  const anonymous = describeAnonymous(config);
  return [
    ...toFindings('settings', [...config.misspelt, ...failing(rules)], 'no contradiction'),
    ...(anonymous === undefined ? [] : [warning('settings', anonymous)]),
  ];
}
