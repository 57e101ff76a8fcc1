import type { JsonObject } from './content.ts';

/** Sends one statement of a transactional tool, with values for `$1`, `$2` … @returns its rows */
export type ToolSql = (text: string, values?: unknown[]) => Promise<JsonObject[]>;
