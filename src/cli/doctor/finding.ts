/** A result of `agent-runtime doctor`. The `detail` of a fault names the setting to change. */
export interface Finding {
  check: string;
  /** `skipped`: nothing to check, or an earlier fault prevents it; `warning`: a setting works and has a risk. */
  status: 'ok' | 'fault' | 'skipped' | 'warning';
  detail: string;
}

export const ok = (check: string, detail: string): Finding => ({ check, status: 'ok', detail });
export const fault = (check: string, detail: string): Finding => ({ check, status: 'fault', detail });
export const warning = (check: string, detail: string): Finding => ({ check, status: 'warning', detail });
export const skipped = (check: string, detail: string): Finding => ({ check, status: 'skipped', detail });

/** A condition that holds if there is a fault, and the message about that fault. */
export type FaultRule = [isFault: boolean, sentence: string];

export const failing = (rules: FaultRule[]): string[] =>
  rules.filter(([isFault]) => isFault).map(([, sentence]) => sentence);

/** Returns a finding for each fault. @param fine text of the only finding if there is no fault */
export const toFindings = (check: string, faults: string[], fine: string): Finding[] =>
  faults.length === 0 ? [ok(check, fine)] : faults.map((detail) => fault(check, detail));

/** Returns an error's message, or its code if it has none. */
export const toReason = (error: unknown): string =>
  error instanceof Error ? error.message || String((error as NodeJS.ErrnoException).code) : String(error);
