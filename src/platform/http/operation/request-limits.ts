import type { Request, Response } from 'express';
import type { Operation } from './operation.ts';

/** What one caller may take of what all share. */
export interface RequestLimits {
  /**
   * Lets a request in, before it costs anything, and counts it until its answer or its connection ends.
   * @throws {LimitError} where the caller has all that one may have
   */
  admit(caller: string, operation: Operation<unknown>, request: Request, response: Response): Promise<void>;
  /**
   * Counts what an open stream does once more as if it were another request.
   * @throws {LimitError} where the caller has done so often enough in this minute
   */
  count(caller: string, operation: Operation<unknown>): Promise<void>;
}

/** A credential on its way in. */
export interface Login {
  credential: string;
  /** Whose failures it counts with: its address, the id of its key. */
  names: string[];
}

/** How often a credential may be wrong. */
export interface LoginLimit {
  /** Before a credential is looked at. @throws {LimitError} where there were too many wrong ones */
  check(login: Login): void;
  succeeded(login: Login): void;
  /** Counts a wrong one. @throws {LimitError} where that is one too many */
  failed(login: Login): Promise<void>;
}
