/** The result of one check; a problem is a sentence that names the setting to change. */
export interface Finding {
  check: string;
  /** `skipped`: there is nothing to look at, or it cannot be looked at before something else is right. */
  status: 'ok' | 'fault' | 'skipped';
  detail: string;
}

/** Nothing is wrong. */
export const ok = (check: string, detail: string): Finding => ({ check, status: 'ok', detail });
/** Something is wrong. */
export const fault = (check: string, detail: string): Finding => ({ check, status: 'fault', detail });
/** Nobody looked. */
export const skipped = (check: string, detail: string): Finding => ({ check, status: 'skipped', detail });

/** The faults of a check, or that there are none. */
export const withFaults = (check: string, faults: string[], fine: string): Finding[] =>
  faults.length === 0 ? [ok(check, fine)] : faults.map((detail) => fault(check, detail));

/** The words of an error, or its code where it has none. */
export const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message || String((error as NodeJS.ErrnoException).code) : String(error);
