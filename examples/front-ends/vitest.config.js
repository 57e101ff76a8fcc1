// Long enough for a machine under any load.
export default { test: { include: ['*.suite.js'], testTimeout: 120_000 } };
