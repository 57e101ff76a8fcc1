/** A session of another store, ready to be created here. */
export interface SourceSession {
  appName: string;
  userId: string;
  sessionId: string;
  /** The body of its creation as JSON text: its id, its state in all three scopes, its events as they were written. */
  body: () => Promise<string>;
}

/** Sessions of another store, in an order that is the same each time. */
export interface SessionSource {
  /** A name of the source for people. */
  name: string;
  /** The number of sessions; `undefined` where it is only known at the end. */
  total: number | undefined;
  sessions(): AsyncIterable<SourceSession>;
  close(): Promise<void>;
}

/** A session's body from JSON texts that stay as they were written: numbers keep their digits. */
export const toBody = (sessionId: string, state: string, events: string[]): string =>
  `{"sessionId":${JSON.stringify(sessionId)},"state":${state},"events":[${events.join(',')}]}`;
