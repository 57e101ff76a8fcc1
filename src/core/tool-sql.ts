import type { JsonObject } from './content.ts';

/** Executes one SQL statement of a transactional tool, with values for `$1`, `$2` …. */
export type ToolSql = (text: string, values?: unknown[]) => Promise<JsonObject[]>;
