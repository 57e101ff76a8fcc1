import { useEffect, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatTick } from './format.ts';

interface ChartProps {
  title: string;
  /** Unix times in seconds, in order. */
  times: number[];
  /** What each point is of: days are those of UTC. */
  unit: 'day' | 'hour' | 'moment';
  /** The lines: a name, a value for each time, and how values are written. */
  lines: { name: string; values: (number | null)[] }[];
  format: (value: number) => string;
}

const HEIGHT = 200;
const HOUR = 3_600;
const DAY = 86_400;
const TICKS = {
  day: [DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY],
  hour: [HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY],
  moment: [60, 600, HOUR, 6 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY],
};

/** Widens a time that has room for no two ticks; around one point uPlot would put years. */
function atLeast(width: number, low: number, high: number): [number, number] {
  const missing = Math.max(0, width - (high - low)) / 2;
  return [low - missing, high + missing];
}

/** Lines over time. The numbers are in a table of the page too: a picture says nothing to a screen reader. */
export function Chart({ title, times, unit, lines, format }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const key = JSON.stringify([times, lines]);
  const theme = useColours();
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const colourOf = (selector: string) => getComputedStyle(box.parentElement?.querySelector(selector) ?? box).color;
    const axis = { stroke: getComputedStyle(box).color, grid: { stroke: colourOf('.grid'), width: 1 } };
    const width = () => Math.max(200, box.clientWidth);
    const plot = new uPlot(
      {
        width: width(),
        height: HEIGHT,
        legend: { show: false },
        ...(unit === 'day' && { tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') }),
        axes: [
          {
            ...axis,
            incrs: TICKS[unit],
            values: (_plot, values, _axis, _space, step) =>
              values.map((at) => formatTick(at, step < DAY ? 'time' : unit)),
          },
          { ...axis, size: 60, values: (_plot, values) => values.map((value) => format(value)) },
        ],
        scales: {
          x: { range: (_plot, low, high) => atLeast(unit === 'moment' ? HOUR : DAY, low, high) },
          y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
        },
        series: [
          {},
          ...lines.map(({ name }, index) => ({
            label: name,
            stroke: colourOf(`.line-${index}`),
            width: 2,
            points: { show: times.length < 40 },
          })),
        ],
      },
      [times, ...lines.map(({ values }) => values)],
      box,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: width(), height: HEIGHT }));
    observer.observe(box);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [key, theme, unit]);
  return (
    <figure className="chart">
      <figcaption>
        {title}
        <span className="grid" />
        {lines.map(({ name }, index) => (
          <span key={name} className={`legend line-${index}`}>
            {name}
          </span>
        ))}
      </figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}

/** Changes with the colours of the page: a picture does not by itself. */
function useColours(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const change = () => setCount((before) => before + 1);
    const media = matchMedia('(prefers-color-scheme: dark)');
    const observer = new MutationObserver(change);
    media.addEventListener('change', change);
    observer.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      media.removeEventListener('change', change);
      observer.disconnect();
    };
  }, []);
  return count;
}
