/** `TEST_PATIENCE=3` makes every limit of time of the tests three times as long, for a machine that is busy. */
const PATIENCE = Number(process.env['TEST_PATIENCE'] ?? 1);
if (!(PATIENCE >= 1)) throw new Error('TEST_PATIENCE is a number of 1 or more.');

/** A second and a minute of waiting for what surely comes, in milliseconds. */
export const SECOND = 1_000 * PATIENCE;
export const MINUTE = 60 * SECOND;
