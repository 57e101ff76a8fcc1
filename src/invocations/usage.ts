import type { ModelUse } from '../conversation/budgets/budget.ts';

/** What model calls of an invocation have used and no statement has counted yet. */
export interface Usage {
  /** Called after each model call. */
  add(use: ModelUse): void;
  /** What has to be counted now; it is handed out once. */
  take(): ModelUse[];
}

/** Begins with nothing. */
export function newUsage(): Usage {
  const uses: ModelUse[] = [];
  return {
    add(use) {
      if (use.promptTokens > 0 || use.outputTokens > 0) uses.push(use);
    },
    take: () => uses.splice(0),
  };
}
