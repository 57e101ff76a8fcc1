/**
 * Limits of rows, passed as arguments of statements: settings of a connection reach neither the workers of a
 * distributed database nor all connections of a pooler.
 */
export interface RowLimits {
  /** Maximum size of the state of a session, user or app, bytes of its JSON: `assert_state_size` holds it. */
  maxStateBytes: number;
  maxStateKeys: number;
  /** Maximum size of what agents write into the state of an app for one user: `assert_writer_share` holds it. */
  maxAppStateBytesPerUser: number;
  /** Maximum size of the events of a session, bytes of their JSON: the SQL function `assert_session_size` holds it. */
  maxSessionBytes: number;
}
