import type { SettingValues } from '../config/setting-schemas.ts';
import {
  type Config as BaseConfig,
  type Intersection,
  type Joined,
  listDoors,
  readConfig as readBaseConfig,
} from '../config/config.ts';
import { features } from './features.ts';

type SettingsOf<Each> = Each extends { settings: infer Groups } ? SettingValues<Joined<Groups>> : never;

/** All settings, and what follows from them. */
export type Config = BaseConfig & Intersection<SettingsOf<(typeof features)[number]>>;

/** Names of the doors that DOORS may open. */
export const DOOR_NAMES = listDoors(features);

/**
 * Treats an empty variable as unset. A process that does not listen (`listens: false`) needs no login for its HOST.
 * @throws {ConfigError} that names each invalid variable, its value and the allowed values
 */
export const readConfig = (environment: Record<string, string | undefined>, options?: { listens?: boolean }): Config =>
  readBaseConfig(environment, features, options) as Config;
