import { type Config, readConfig } from '../../config/config.ts';
import { checkAgents } from './check-agents.ts';
import { checkDatabase } from './check-database.ts';
import { checkContainer, checkDisk, checkPorts } from './check-machine.ts';
import { checkModel } from './check-model.ts';
import { checkSettings } from './check-settings.ts';
import { fault, type Finding, reasonOf } from './finding.ts';

/**
 * Looks at all that a service with these settings needs, before it starts; changes nothing and asks no model.
 * @param cgroup where the kernel shows the limits of the container
 */
export async function examine(
  environment: Record<string, string | undefined>,
  { cgroup }: { cgroup?: string } = {},
): Promise<Finding[]> {
  const config = read(environment);
  if (Array.isArray(config)) return [...config, ...checkContainer(cgroup)];
  const checks = [checkDatabase(config), model(config), checkAgents(config), checkPorts(config), checkDisk(config)];
  return [...checkSettings(config), ...(await Promise.all(checks)).flat(), ...checkContainer(cgroup)];
}

/** The settings, or each that is wrong. */
function read(environment: Record<string, string | undefined>): Config | Finding[] {
  try {
    return readConfig(environment);
  } catch (error) {
    return reasonOf(error)
      .split('\n')
      .map((line) => fault('settings', line));
  }
}

/** A model that cannot be chosen is a fault of the settings. */
const model = (config: Config): Promise<Finding> =>
  checkModel(config).catch((error: unknown) => fault('model', reasonOf(error)));
