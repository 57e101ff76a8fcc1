import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { listSettings } from '../../src/config/config.ts';
import { features } from '../../src/process/features.ts';
import { listMetrics, toPrometheusLabel, toPrometheusName } from '../../src/observability/metrics/instruments.ts';

const read = (path: string) => readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');

interface Service {
  build?: string;
  image?: string;
  depends_on?: object;
  networks?: { default: { aliases: string[] } };
  profiles?: string[];
  ports?: string[];
  environment?: Record<string, unknown>;
  volumes?: string[];
  read_only?: boolean;
}

describe('docker-compose.yml', () => {
  const { services } = parse(read('docker-compose.yml'), { merge: true }) as { services: Record<string, Service> };
  const inProfile = (name: string | undefined) =>
    Object.keys(services).filter((each) => (services[each]?.profiles?.[0] ?? undefined) === name);

  test('has what a profile says, and without one the database and the runtime', () => {
    expect(inProfile(undefined)).toEqual(['postgres', 'runtime']);
    expect(inProfile('dev')).toEqual(['dev']);
    expect(inProfile('replicas')).toEqual(['replica-1', 'replica-2', 'proxy']);
    expect(inProfile('observe')).toEqual(['prometheus', 'grafana']);
  });

  test('publishes on loopback only, and neither database nor metrics', () => {
    const published = Object.entries(services).filter(([, { ports }]) => ports);
    expect(published.map(([name]) => name)).toEqual(['runtime', 'dev', 'proxy', 'grafana']);
    expect(published.flatMap(([, { ports = [] }]) => ports).filter((port) => !port.startsWith('127.0.0.1:'))).toEqual(
      [],
    );
  });

  test('sets only what the runtime knows, and trusts proxies only where nothing else reaches it', () => {
    const known = new Set(Object.values(listSettings(features)).flatMap((settings) => Object.keys(settings)));
    const runtimes = ['runtime', 'dev', 'replica-1', 'replica-2'];
    const names = runtimes.flatMap((name) => Object.keys(services[name]?.environment ?? {}));
    expect(names.filter((name) => !known.has(name))).toEqual([]);
    const trusting = runtimes.filter((name) => services[name]?.environment?.['TRUSTED_PROXIES'] !== undefined);
    expect(trusting.filter((name) => services[name]?.ports)).toEqual([]);
    expect(trusting).toEqual(['replica-1', 'replica-2']);
  });

  test('builds one image, and has nginx look up the replicas at run time, once both are healthy', () => {
    const runtimes = ['runtime', 'dev', 'replica-1', 'replica-2'];
    expect(Object.keys(services).filter((name) => services[name]?.build)).toEqual(['runtime']);
    expect(runtimes.map((name) => services[name]?.image)).toEqual(runtimes.map(() => 'agent-runtime'));
    const replicas = Object.keys(services).filter((name) =>
      services[name]?.networks?.default.aliases.includes('replicas'),
    );
    expect(replicas).toEqual(['replica-1', 'replica-2']);
    const isHealthy = { condition: 'service_healthy' };
    expect(services['proxy']?.depends_on).toEqual(Object.fromEntries(replicas.map((name) => [name, isHealthy])));
    const nginx = read('deploy/nginx.conf');
    expect(nginx).toMatch(/\n +resolver 127\.0\.0\.11 valid=1s/);
    expect(nginx).toMatch(/set \$runtime replicas;\n +proxy_pass http:\/\/\$runtime:8000;/);
    expect(nginx).not.toContain('server replica');
  });

  test('needs no newer engine than Debian 12 has', () => {
    expect(read('Dockerfile')).not.toMatch(/^HEALTHCHECK.*--start-interval/m);
    expect(read('docker-compose.yml')).not.toContain('start_interval');
  });

  test('mounts files that there are', () => {
    const mounted = Object.values(services).flatMap(({ volumes = [] }) =>
      volumes.filter((each) => each.startsWith('.')),
    );
    expect(mounted.map((each) => read(each.split(':')[0] ?? '').length).filter((length) => length === 0)).toEqual([]);
    expect(mounted).toHaveLength(5);
  });
});

test('the image gets every file that its Dockerfile copies', () => {
  const sent = new Set(
    read('.dockerignore')
      .split('\n')
      .filter((line) => line.startsWith('!'))
      .map((line) => line.slice(1)),
  );
  const copied = [...read('Dockerfile').matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, names = '']) =>
    names.split(' '),
  );
  expect(copied).toContain('src');
  expect(copied.filter((name) => !sent.has(name.replace(/^\.\//, '')))).toEqual([]);
});

describe('the dashboard', () => {
  const { panels } = JSON.parse(read('deploy/grafana/agent-runtime.json')) as {
    panels: { title: string; targets: { expr: string; legendFormat: string }[] }[];
  };
  const exprs = panels.flatMap(({ targets }) => targets);
  const exported = new Map(
    listMetrics().flatMap(([name, { kind, unit, labels }]) => {
      const base = toPrometheusName(name, unit);
      const names = kind === 'histogram' ? ['bucket', 'count', 'sum'].map((suffix) => `${base}_${suffix}`) : [base];
      return names.map(
        (each) => [each, new Set([...Object.keys(labels).map(toPrometheusLabel), 'le', 'instance'])] as const,
      );
    }),
  );
  const metricsIn = (expr: string) =>
    expr.match(/\b(?:agent_runtime|gen_ai_(?:client|execute|invoke)|process)_\w+/g) ?? [];

  test('asks for metrics that there are, and for all of them', () => {
    const asked = exprs.flatMap(({ expr }) => metricsIn(expr));
    expect(asked.filter((name) => !exported.has(name))).toEqual([]);
    const missing = listMetrics()
      .map(([name, { unit }]) => toPrometheusName(name, unit))
      .filter((name) => !asked.some((each) => each.startsWith(name)));
    expect(missing).toEqual([]);
  });

  test('asks for labels that they have', () => {
    for (const { expr, legendFormat } of exprs) {
      const [metric = ''] = metricsIn(expr);
      const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(', '));
      const matched = [...expr.matchAll(/(\w+)(?:=~|!=|=)"/g)].map(([, name = '']) => name);
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, name = '']) => name);
      const unknown = [...grouped, ...matched, ...shown].filter((label) => !exported.get(metric)?.has(label));
      expect([metric, unknown]).toEqual([metric, []]);
    }
  });

  test('scrapes the port that compose opens', () => {
    expect(read('deploy/prometheus.yml')).toContain('port: 9464');
    expect(read('docker-compose.yml')).toContain('METRICS_PORT: ${METRICS_PORT-9464}');
  });
});

describe('what is installed', () => {
  test('runs no install script: not here, not beside the benchmark and the pages, not in containers', () => {
    for (const folder of ['', 'bench/', 'docs/api/'])
      expect(read(`${folder}.npmrc`)).toContain('\nignore-scripts=true\n');
    for (const file of ['Dockerfile', 'template/docker-compose.yml']) {
      const commands = read(file).match(/npm (?:ci|install|prune)\b[^&"\n]*/g) ?? [];
      expect(commands.length).toBeGreaterThan(0);
      expect(commands.filter((command) => !command.includes('--ignore-scripts'))).toEqual([]);
    }
  });
});
