import { useEffect, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

interface ChartProps {
  title: string;
  /** Unix times in seconds, in order. */
  times: number[];
  /** The lines: a name, a value for each time, and how values are written. */
  lines: { name: string; values: (number | null)[] }[];
  format: (value: number) => string;
}

const HEIGHT = 200;
const HALF_DAY = 43_200;

/** Lines over time. The numbers are in a table of the page too: a picture says nothing to a screen reader. */
export function Chart({ title, times, lines, format }: ChartProps) {
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
        axes: [axis, { ...axis, size: 60, values: (_plot, values) => values.map((value) => format(value)) }],
        scales: {
          // One point stands in the middle of its day; uPlot would put years around it.
          x: { range: (_plot, low, high) => (times.length === 1 ? [low - HALF_DAY, low + HALF_DAY] : [low, high]) },
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
  }, [key, theme]);
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
