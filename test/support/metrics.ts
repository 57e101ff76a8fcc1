/** What `/metrics` answers, as samples: name with labels, e.g. `up{job="a"}`, to its value. */
export type Samples = Map<string, number>;

/** Reads the text format of Prometheus. @throws Error for a line that is no sample and no comment */
function parseMetrics(text: string): Samples {
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => {
      const [, name, value] = /^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
      if (name === undefined || Number.isNaN(Number(value?.replace('+Inf', 'Infinity'))))
        throw new Error(`not a sample: ${line}`);
      return [name, Number(value)];
    }),
  );
}

/** Reads the metrics of a running service. */
export async function readMetrics(url: string | undefined): Promise<Samples> {
  const response = await fetch(url ?? '');
  if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
  return parseMetrics(await response.text());
}

/** The metrics of a name, by their labels without quotes, e.g. `outcome=claimed`; of a histogram without buckets. */
export const valuesOf = (samples: Samples, name: string): Record<string, number> =>
  Object.fromEntries(
    [...samples].flatMap(([key, value]) => {
      const [of = '', labels = ''] = key.split(/[{}]/);
      return of === name ? [[labels.replaceAll('"', ''), value]] : [];
    }),
  );
