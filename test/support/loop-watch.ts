import { measureSlowness } from './slowness.ts';

/**
 * Loaded into a service with `--import`: notes how much CPU time its main thread used between two turns of the event
 * loop. CPU time and not the clock: a machine that gives the process no time freezes nothing.
 */
let longest = 0;
const CALIBRATED_FROM_MS = 100;
/** Those of at least a millisecond: the others are of an idle process. */
let turns: number[] = [];
let before = process.threadCpuUsage();
function endTurn(): void {
  const { user, system } = process.threadCpuUsage(before);
  before = process.threadCpuUsage();
  const ms = (user + system) / 1000;
  longest = Math.max(longest, ms);
  if (ms >= 1) turns.push(ms);
}
setInterval(endTurn, 5).unref();

process.on('message', () => {
  endTurn();
  // Where nothing was long there is nothing to compare.
  const slowness = longest < CALIBRATED_FROM_MS ? 1 : measureSlowness();
  const sockets = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  process.send?.({
    longestMs: longest / slowness,
    turns,
    slowness,
    heapMb: process.memoryUsage().heapTotal / 2 ** 20,
    sockets,
  });
  longest = 0;
  turns = [];
  before = process.threadCpuUsage();
});
// The channel is for the test only and must not keep the process.
process.channel?.unref();
