/** Asks two addresses again and again, in a process of its own, until it is told to stop: how long each answer took. */
const [, , ...urls] = process.argv;
const times: number[] = [];
const statuses: number[] = [];
let isOver = false;

process.on('message', () => (isOver = true));
process.send?.('ready');
while (!isOver) {
  for (const url of urls) {
    const start = performance.now();
    const response = await fetch(url);
    await response.arrayBuffer();
    times.push(performance.now() - start);
    statuses.push(response.status);
  }
}
process.send?.({ times, statuses }, () => process.exit());
