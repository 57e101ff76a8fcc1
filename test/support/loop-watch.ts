/**
 * Loaded into a service with `--import`: notes how much CPU time its main thread used between two turns of the event
 * loop. CPU time and not the clock: a machine that gives the process no time freezes nothing.
 */
let longest = 0;
let before = process.threadCpuUsage();
setInterval(() => {
  const { user, system } = process.threadCpuUsage(before);
  before = process.threadCpuUsage();
  longest = Math.max(longest, (user + system) / 1000);
}, 5).unref();

process.on('message', () => {
  const sockets = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  process.send?.({ longestMs: longest, heapMb: process.memoryUsage().heapTotal / 2 ** 20, sockets });
  longest = 0;
});
// The channel is for the test only and must not keep the process.
process.channel?.unref();
