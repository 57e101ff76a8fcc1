/**
 * Loaded into a service with `--import`: notes how much CPU time its main thread used between two turns of the event
 * loop. CPU time and not the clock: a machine that gives the process no time freezes nothing.
 */
let longest = 0;
/** Those of at least a millisecond: the others are of an idle process. */
let turns: number[] = [];
let before = process.threadCpuUsage();
setInterval(() => {
  const { user, system } = process.threadCpuUsage(before);
  before = process.threadCpuUsage();
  const ms = (user + system) / 1000;
  longest = Math.max(longest, ms);
  if (ms >= 1) turns.push(ms);
}, 5).unref();

process.on('message', () => {
  const sockets = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  process.send?.({ longestMs: longest, turns, heapMb: process.memoryUsage().heapTotal / 2 ** 20, sockets });
  longest = 0;
  turns = [];
});
// The channel is for the test only and must not keep the process.
process.channel?.unref();
