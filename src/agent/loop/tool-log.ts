import type { JsonObject } from '../../core/content.ts';
import type { Log } from '../../platform/log.ts';
import type { ToolLog } from '../definition/tool.ts';

/** Returns the service's log for code of an agent's author; `named` stands in each line. */
export function toToolLog(log: Log | undefined, named: JsonObject): ToolLog {
  const at =
    (level: keyof ToolLog): ToolLog[keyof ToolLog] =>
    (message, fields) =>
      log?.[level]({ ...fields, ...named }, message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}
