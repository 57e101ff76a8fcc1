import type { Figures, Row } from './measure.ts';
import type { Large, Shape } from './shapes.ts';
import type { Target } from './targets.ts';

/** All that a benchmark found. */
export interface Report {
  date: string;
  command: string;
  /** Versions and machine, as words. */
  machine: string;
  rows: Row[];
  shapes: Partial<Record<Target['name'], Shape>>;
  large: Large | undefined;
}

const rate = (figures: Figures | undefined) =>
  figures ? `${Math.round(figures.perSecond).toLocaleString('en')} ±${Math.round(figures.spread * 100)}%` : '–';
const cpu = (figures: Figures | undefined) =>
  figures ? `${figures.serverCpu.toFixed(2)} + ${figures.databaseCpu.toFixed(2)}` : '–';
const ms = (value: number | undefined) => (value === undefined ? '–' : `${value.toFixed(value < 100 ? 1 : 0)} ms`);
const mb = (value: number | undefined) => (value === undefined ? '–' : `${Math.round(value)} MB`);
const ratio = (ours: number | undefined, other: number | undefined, digits: number) =>
  ours === undefined || other === undefined ? '–' : (ours / other).toFixed(digits);

const line = (cells: string[]) => `| ${cells.join(' | ')} |`;
const table = (head: string[], rows: string[][]) => [line(head), line(head.map(() => '---')), ...rows.map(line)];

/** A few rates, and of the shapes start and memory, stand in the README too. */
const SUMMED = /^(?:get a session, 100 |list 100 |create |invocation|start |memory )/;

/** What was found, as the page that is published. */
export function toMarkdown(report: Report): string {
  const { rows, shapes, large } = report;
  const rates = rows.map(({ work, figures: { peer, ours, express } }) => [
    work.name,
    rate(peer),
    rate(ours),
    rate(express),
    `${ratio(ours?.perSecond, peer?.perSecond, 1)} (${work.goals.peer ?? '–'})`,
    `${ratio(ours?.perSecond, express?.perSecond, 2)} (${work.goals.express})`,
    cpu(ours),
    `${ms(ours?.p50)}, ${ms(ours?.p99)}`.replaceAll(' ms', ''),
  ]);
  const columns = ['work', 'peer', 'ours', 'express'];
  return [
    `${report.date}, ${report.machine}. \`${report.command}\``,
    '',
    'Requests a second with 16 in flight, medians of interleaved rounds, goals in brackets. Last, of ours: CPU a',
    'request, ms of the server + ms of the database, and how long a client waits, p50 and p99 in ms.',
    '',
    ...table([...columns, 'ours ÷ peer', 'ours ÷ express', 'CPU', 'p50, p99'], rates),
    '',
    ...table(columns, shapeRows(shapes)),
    '',
    ...(large
      ? [
          `A page of 50 of ${large.sessions.toLocaleString('en')} sessions: p99 ${ms(large.pageP99)} (5 ms). ` +
            `Memory of the runtime while 16 clients read 3,000 events: +${mb(large.readMemory)} (40 MB).`,
          '',
        ]
      : []),
  ].join('\n');
}

/** Rates, start and memory, for the README. */
export function toSummary(report: Report): string {
  const columns = ['work', 'peer', 'ours', 'express'];
  const rates = report.rows.map(({ work, figures: { peer, ours, express } }) => [
    `${work.name}, a second`,
    ...[peer, ours, express].map(rate),
  ]);
  const chosen = [...rates, ...shapeRows(report.shapes)].filter(([name = '']) => SUMMED.test(name));
  return [
    ...table(columns, chosen),
    '',
    `${report.date}, ${report.machine}, 16 in flight. \`${report.command}\``,
    '',
  ].join('\n');
}

function shapeRows(shapes: Report['shapes']): string[][] {
  const each = (name: string, cell: (shape: Shape) => string) => [
    name,
    ...(['peer', 'ours', 'express'] as const).map((target) => cell(shapes[target] ?? {})),
  ];
  const growth = ({ growth: found }: Shape) =>
    found ? `${ms(found.first)} → ${ms(found.last)} (${(found.last / found.first).toFixed(2)})` : '–';
  const events = shapes.ours?.growth?.events ?? 0;
  const ofPeer = shapes.peer?.growth ? ` (peer: ${shapes.peer.growth.events})` : '';
  return [
    each(`a session of 0 to ${events.toLocaleString('en')} events${ofPeer}, p50 of the first and last 50`, growth),
    each('one session, p50 alone', ({ alone }) => ms(alone)),
    each('one session, p50 with 16 in flight', ({ together }) => ms(together)),
    each('start to the first 200', ({ startMs }) => ms(startMs)),
    each('CPU of a start', ({ startCpuMs }) => ms(startCpuMs)),
    each('memory before the first request', ({ idleMemory }) => mb(idleMemory)),
    each('memory after the load above', ({ loadedMemory }) => mb(loadedMemory)),
  ];
}

const COLOURS = { peer: '#9aa5b1', ours: '#2457c5', express: '#d9822b' } as const;
const BAR = { height: 9, gap: 14, left: 270, width: 440 };

/** The rates as bars, each row on a scale of its own: its fastest is as wide as the chart. */
export function toChart({ rows, date }: Report): string {
  const names = ['peer', 'ours', 'express'] as const;
  const step = BAR.height * names.length + BAR.gap;
  const height = 50 + rows.length * step;
  const bars = rows.flatMap(({ work, figures }, row) => {
    const top = 45 + row * step;
    const fastest = Math.max(...names.map((name) => figures[name]?.perSecond ?? 0));
    const label = `<text x="${BAR.left - 8}" y="${top + 18}" text-anchor="end">${work.name}</text>`;
    const drawn = names.map((name, index) => {
      const value = figures[name]?.perSecond;
      if (value === undefined) return '';
      const width = ((value / fastest) * BAR.width).toFixed(1);
      const y = top + index * BAR.height;
      const number = `<text x="${BAR.left + Number(width) + 4}" y="${y + 8}" font-size="9">${Math.round(value)}</text>`;
      const place = `x="${BAR.left}" y="${y}" width="${width}" height="${BAR.height - 1}"`;
      return `<rect ${place} fill="${COLOURS[name]}"/>${number}`;
    });
    return [label, ...drawn];
  });
  const legend = names.map(
    (name, index) =>
      `<rect x="${BAR.left + index * 90}" y="18" width="10" height="10" fill="${COLOURS[name]}"/>` +
      `<text x="${BAR.left + 14 + index * 90}" y="27">${name}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="770" height="${height}" font-family="sans-serif" font-size="11">`,
    `<rect width="770" height="${height}" fill="white"/>`,
    `<text x="10" y="27" font-weight="bold">Requests a second, ${date}</text>`,
    ...legend,
    ...bars,
    '</svg>',
    '',
  ].join('\n');
}
