import type { Request, Response } from 'express';
import type { Operation } from './operation.ts';

/** What one caller may take of what all share. */
export interface RequestLimits {
  /**
   * Lets a request in, before it costs anything, and counts it until its answer or its connection ends.
   * @throws {LimitError} where the caller has all that one may have
   */
  admit(caller: string, operation: Operation<unknown>, request: Request, response: Response): Promise<void>;
}
