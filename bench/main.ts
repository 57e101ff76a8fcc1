import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { arch, cpus, totalmem } from 'node:os';
import { parseArgs } from 'node:util';
import { type Extent, measureRow, type Row } from './measure.ts';
import { type Postgres, startPostgres } from './postgres.ts';
import { type Report, toChart, toMarkdown, toSummary } from './report.ts';
import { loadedMemory, measureGrowth, measureHotSession, measureLarge, measureStart, type Shape } from './shapes.ts';
import { startModel, startTargets, type Target } from './targets.ts';
import { WORKS } from './works.ts';

/**
 * `npm run bench`: the runtime beside the peer and two limits, on one PostgreSQL with durable commits, in turns. The
 * page, the chart and all figures go to `bench/results/`, those of a full run to `docs/benchmarks.md` too. Let the
 * machine do nothing else meanwhile.
 *
 *   --quick           two minutes: one short round, smaller sizes
 *   --only=<words>    the rows whose name has these words, and nothing but rows
 *   --targets=<list>  some of peer, ours, express, database
 */

const FULL: Extent = {
  rounds: 3,
  roundMs: 1_500,
  grownEvents: 3_000,
  grownEventsOfPeer: 500,
  starts: 5,
  pagedSessions: 10_000,
  readMs: 10_000,
};
const QUICK: Extent = {
  rounds: 1,
  roundMs: 500,
  grownEvents: 500,
  grownEventsOfPeer: 0,
  starts: 1,
  pagedSessions: 1_000,
  readMs: 2_000,
};
const RESULTS = new URL('results/', import.meta.url);
/** The page where the figures of a full run are published; a few of them stand in the README. */
const PAGE = new URL('../docs/benchmarks.md', import.meta.url);
const README = new URL('../README.md', import.meta.url);

const { values } = parseArgs({
  options: { quick: { type: 'boolean' }, only: { type: 'string' }, targets: { type: 'string' } },
});
const postgres = await startPostgres();
const model = await startModel();
let targets: Target[] = [];
try {
  targets = await startTargets(postgres, model.url);
  const chosen = targets.filter(({ name }) => !values.targets || values.targets.split(',').includes(name));
  await publish(await measure(chosen, values.quick ? QUICK : FULL));
  console.error(`It took ${(performance.now() / 60_000).toFixed(1)} minutes.`);
} finally {
  for (const target of targets) await target.close();
  await model.stop();
  await postgres.stop();
}

async function measure(chosen: Target[], extent: Extent): Promise<Report> {
  const rows: Row[] = [];
  for (const work of WORKS.filter(({ name }) => name.includes(values.only ?? ''))) {
    rows.push(await measureRow(work, chosen, postgres, extent));
    console.error(work.name);
  }
  const shapes: Report['shapes'] = {};
  for (const target of values.only === undefined ? chosen : []) {
    shapes[target.name] = await measureShape(target, extent);
    console.error(`start, memory and sessions of ${target.name}`);
  }
  const ours = chosen.find(({ name }) => name === 'ours');
  const large = ours && values.only === undefined ? await measureLarge(ours, extent) : undefined;
  return {
    date: new Date().toISOString().slice(0, 10),
    command: `npm run bench${values.quick ? ' -- --quick' : ''}`,
    machine: describeMachine(postgres),
    rows,
    shapes,
    large,
  };
}

async function measureShape(target: Target, extent: Extent): Promise<Shape> {
  const memory = loadedMemory(target);
  return {
    ...(await measureStart(target, extent.starts)),
    ...(memory === undefined ? {} : { loadedMemory: memory }),
    ...(await measureGrowth(target, extent)),
    ...(await measureHotSession(target, extent.rounds * 64)),
  };
}

function describeMachine({ version }: Postgres): string {
  const [cpu] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  const machine = `${cpus().length} × ${cpu?.model.trim() || arch()}, ${memory} GiB`;
  return `${machine}, Node ${process.versions.node}, PostgreSQL ${version} with durable commits`;
}

async function publish(report: Report): Promise<void> {
  const page = toMarkdown(report);
  console.log(page);
  if (values.only !== undefined || values.targets !== undefined) return;
  await mkdir(RESULTS, { recursive: true });
  const name = values.quick ? 'quick' : 'full';
  const chart = `\n![Requests a second](${name}.svg)\n`;
  await writeFile(new URL(`${name}.md`, RESULTS), `# Benchmark\n\n${page}${chart}`);
  await writeFile(new URL(`${name}.svg`, RESULTS), toChart(report));
  await writeFile(new URL(`${name}.json`, RESULTS), `${JSON.stringify(report, null, 2)}\n`);
  if (values.quick) return;
  await replaceFigures(PAGE, `${page}\n![Requests a second](benchmarks.svg)\n`);
  await replaceFigures(README, toSummary(report));
  await writeFile(new URL('benchmarks.svg', PAGE), toChart(report));
}

/** Puts figures between the two marks of a page. */
async function replaceFigures(file: URL, figures: string): Promise<void> {
  const published = await readFile(file, 'utf8');
  const marked = published.replace(/(<!-- figures.*?-->).*?(<!-- end of figures -->)/s, (_, from: string, to: string) =>
    [from, '', figures, to].join('\n'),
  );
  await writeFile(file, marked);
}
