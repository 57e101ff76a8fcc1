/** SQL by the name of its prepared statement. */
export const STATEMENTS: Record<'get' | 'list' | 'artifact' | 'create' | 'append' | 'history', string>;
