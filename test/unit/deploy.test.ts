import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { listSettings } from '../../src/config/config.ts';
import { readConfig } from '../../src/process/config.ts';
import { features } from '../../src/process/features.ts';
import { listMetrics, toPrometheusLabel, toPrometheusName } from '../../src/observability/metrics/instruments.ts';
import { ROOT } from '../support/listings.ts';

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

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
    expect(mounted).toHaveLength(6);
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

/** Labels that an expression names and its first metric does not have. */
function findUnknownLabels(expr: string, shown: string[]): string[] {
  const [metric = ''] = metricsIn(expr);
  const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(', '));
  const matched = [...expr.matchAll(/(\w+)(?:=~|!~|!=|=)"/g)].map(([, name = '']) => name);
  return [...grouped, ...matched, ...shown].filter((label) => !exported.get(metric)?.has(label));
}

describe('the dashboard', () => {
  const { panels } = JSON.parse(read('deploy/grafana/agent-runtime.json')) as {
    panels: { title: string; targets: { expr: string; legendFormat: string }[] }[];
  };
  const exprs = panels.flatMap(({ targets }) => targets);

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
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, name = '']) => name);
      expect([expr, findUnknownLabels(expr, shown)]).toEqual([expr, []]);
    }
  });

  test('scrapes the port that compose opens', () => {
    expect(read('deploy/prometheus.yml')).toContain('port: 9464');
    expect(read('docker-compose.yml')).toContain('METRICS_PORT: ${METRICS_PORT-9464}');
  });
});

interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; runbook: string; runbook_url?: string };
}

/** Series under which each alert fires after half an hour. Without them none may. */
const FIRING: Record<string, Record<string, string>> = {
  AgentRuntimeAbsent: {},
  AgentRuntimeReplicaDown: { up: '1x9 0x60', agent_runtime_invocations_active: '1x9 _x60' },
  AgentRuntimeRestarts: { process_start_time_seconds: '1+1x60', agent_runtime_invocations_active: '1x60' },
  AgentRuntimeErrors: {
    'agent_runtime_http_request_duration_seconds_count{status="200",operation="run"}': '0+90x60',
    'agent_runtime_http_request_duration_seconds_count{status="500",operation="run"}': '0+10x60',
  },
  AgentRuntimeInvocationsFail: {
    'agent_runtime_invocation_duration_seconds_count{outcome="succeeded"}': '0+80x60',
    'agent_runtime_invocation_duration_seconds_count{outcome="model_error"}': '0+20x60',
  },
  AgentRuntimeModelFails: {
    'gen_ai_client_inference_duration_seconds_count{gen_ai_request_model="m"}': '0+80x60',
    'gen_ai_client_inference_duration_seconds_count{gen_ai_request_model="m",error_type="429"}': '0+20x60',
  },
  AgentRuntimeQueueSlow: {
    'agent_runtime_queue_wait_seconds_bucket{outcome="claimed",le="30"}': '0+1x60',
    'agent_runtime_queue_wait_seconds_bucket{outcome="claimed",le="60"}': '0+9x60',
    'agent_runtime_queue_wait_seconds_bucket{outcome="claimed",le="+Inf"}': '0+9x60',
  },
  AgentRuntimeFull: { agent_runtime_invocations_active: '190x60' },
  AgentRuntimeQueueRefuses: { 'agent_runtime_queue_refusals_total{reason="unserved"}': '0x20 1x40' },
  AgentRuntimeTakeovers: { agent_runtime_lease_takeovers_total: '0x20 1x40' },
  AgentRuntimeUnknownToolCalls: { agent_runtime_tool_calls_unknown_total: '0x20 1x40' },
  AgentRuntimeTasksForgotten: { agent_runtime_tasks_forgotten_total: '0x20 1x40' },
  AgentRuntimeQueueOld: { 'agent_runtime_queue_oldest_seconds{queue="webhook deliveries"}': '0+120x60' },
  AgentRuntimeStranded: { agent_runtime_invocations_stranded: '0x10 1x50' },
  AgentRuntimeDatabaseWaits: {
    'agent_runtime_db_wait_seconds_bucket{pool="main",le="0.5"}': '0+1x60',
    'agent_runtime_db_wait_seconds_bucket{pool="main",le="1"}': '0+9x60',
    'agent_runtime_db_wait_seconds_bucket{pool="main",le="+Inf"}': '0+9x60',
  },
  AgentRuntimeEventLoopSlow: { 'agent_runtime_event_loop_delay_seconds{percentile="99"}': '0.8x60' },
  AgentRuntimeMemory: { process_resident_memory_bytes: '1000000000x60', agent_runtime_invocations_active: '1x60' },
  AgentRuntimeCronjobsLate: {
    'agent_runtime_cronjob_lateness_seconds_bucket{le="60"}': '0+1x60',
    'agent_runtime_cronjob_lateness_seconds_bucket{le="300"}': '0+9x60',
    'agent_runtime_cronjob_lateness_seconds_bucket{le="+Inf"}': '0+9x60',
  },
  AgentRuntimeWebhooksFail: { 'agent_runtime_webhook_attempts_total{outcome="failed"}': '0x20 1x40' },
};

/** What a healthy replica reports. */
const HEALTHY = {
  up: '1x60',
  process_start_time_seconds: '1x60',
  process_resident_memory_bytes: '240000000x60',
  agent_runtime_invocations_active: '20x60',
  agent_runtime_lease_takeovers_total: '3x60',
  agent_runtime_invocations_stranded: '0x60',
  'agent_runtime_queue_oldest_seconds{queue="invocations"}': '300x60',
  // People, and long evaluations, may take their time.
  'agent_runtime_queue_oldest_seconds{queue="tasks"}': '900000x60',
  'agent_runtime_queue_oldest_seconds{queue="evaluation cases"}': '90000x60',
  'agent_runtime_http_request_duration_seconds_count{status="200",operation="run"}': '0+100x60',
  'agent_runtime_http_request_duration_seconds_count{status="503",operation="ready"}': '0+100x60',
  'agent_runtime_event_loop_delay_seconds{percentile="99"}': '0.02x60',
};

describe('the alerts', () => {
  const { groups } = parse(read('deploy/alerts.yml')) as { groups: { rules: Rule[] }[] };
  const rules = groups.flatMap((group) => group.rules);

  test.each(rules.map((rule) => [rule.alert, rule] as const))('%s has metrics and labels that there are', (_, rule) => {
    const asked = metricsIn(rule.expr);
    expect(asked.length).toBeGreaterThan(0);
    expect(asked.filter((name) => !exported.has(name))).toEqual([]);
    const shown = [...rule.annotations.summary.matchAll(/\$labels\.(\w+)/g)].map(([, name = '']) => name);
    expect(findUnknownLabels(rule.expr, shown)).toEqual([]);
    expect(['critical', 'warning']).toContain(rule.labels.severity);
    expect(rule.annotations.runbook).toMatch(/^\w.{40,}\.$/);
  });

  test('lead to parts of the runbook, and every part is led to', () => {
    const parts = [...read('docs/runbook.md').matchAll(/^## (.+)$/gm)].map(
      ([, heading = '']) => `docs/runbook.md#${heading.toLowerCase().replaceAll(' ', '-')}`,
    );
    const led = new Set(rules.flatMap(({ annotations }) => annotations.runbook_url ?? []));
    expect([...led].filter((url) => !parts.includes(url))).toEqual([]);
    // What a bill should be, no metric knows.
    expect(parts.filter((part) => !led.has(part))).toEqual(['docs/runbook.md#the-bill-jumped']);
  });

  test('are read by the Prometheus of compose, and sized by the settings that they name', () => {
    expect(read('deploy/prometheus.yml')).toContain('\nrule_files: [alerts.yml]\n');
    const { MAX_INVOCATIONS } = readConfig({});
    const full = rules.find(({ alert }) => alert === 'AgentRuntimeFull');
    expect(full?.expr).toBe(`agent_runtime_invocations_active > ${MAX_INVOCATIONS * 0.8}`);
    expect(full?.annotations.summary).toContain(`(${MAX_INVOCATIONS})`);
  });

  test('fire under what they are for, and none where all is well', ({ skip }) => {
    skip(spawnSync('sh', ['-c', 'command -v promtool']).status !== 0, 'there is no promtool');
    expect(Object.keys(FIRING)).toEqual(rules.map(({ alert }) => alert));
    const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-alerts-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const series = (all: Record<string, string>) =>
      Object.entries(all).map(([name, values]) => {
        const [metric = '', labels = ''] = name.replace('}', '').split('{');
        return { series: `${metric}{${['job="a"', 'instance="i"', labels].filter(Boolean).join(',')}}`, values };
      });
    const tests = [
      ...Object.entries(FIRING).map(([alert, all]) => ({
        interval: '1m',
        input_series: series(all),
        promql_expr_test: [
          {
            expr: `count(ALERTS{alertname="${alert}",alertstate="firing"})`,
            eval_time: '30m',
            exp_samples: [{ labels: '{}', value: 1 }],
          },
        ],
      })),
      {
        interval: '1m',
        input_series: series(HEALTHY),
        promql_expr_test: [{ expr: 'count(ALERTS)', eval_time: '30m', exp_samples: [] }],
      },
    ];
    const file = join(folder, 'test.yml');
    writeFileSync(file, stringify({ rule_files: [join(ROOT, 'deploy/alerts.yml')], evaluation_interval: '1m', tests }));
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' });
    expect([status, stdout + stderr]).toEqual([0, expect.stringContaining('SUCCESS')]);
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
