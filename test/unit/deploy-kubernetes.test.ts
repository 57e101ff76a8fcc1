import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { listSettings } from '../../src/config/config.ts';
import { features } from '../../src/process/features.ts';
import { readConfig } from '../../src/process/config.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { testDatabase } from '../support/database.ts';
import { findListings, ROOT } from '../support/listings.ts';
import { MINUTE } from '../support/patience.ts';

/** What `deploy/` has for Kubernetes and systemd: it fits their schemas, and this service. */

const FOLDER = join(ROOT, 'deploy/kubernetes');
const read = (path: string) => readFileSync(join(FOLDER, path), 'utf8');
const hasTool = (tool: string) => spawnSync('sh', ['-c', `command -v "${tool}"`]).status === 0;

type Labels = Record<string, string>;
interface Container {
  image: string;
  args?: string[];
  envFrom: Record<string, { name: string; optional?: boolean }>[];
  ports?: { name: string; containerPort: number }[];
  securityContext: object;
  [probe: `${string}Probe`]: { httpGet: { path: string; port: string } };
}
interface Pod {
  metadata: { labels: Labels };
  spec: { terminationGracePeriodSeconds: number; enableServiceLinks: boolean; containers: [Container] };
}
interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; labels: Labels };
  spec: {
    template: Pod;
    selector: Labels & { matchLabels: Labels };
    scaleTargetRef: { name: string };
    triggers: { authenticationRef: { name: string }; metadata: { query: string } }[];
  };
}

const { resources } = parse(read('kustomization.yaml')) as { resources: string[] };
const manifests = [...resources, 'autoscaling/scaled-object.yaml'].flatMap((file) =>
  parseAllDocuments(read(file)).map((document) => document.toJS() as Manifest),
);
const find = (kind: string) => manifests.find((each) => each.kind === kind) ?? expect.unreachable(kind);
const settings = Object.fromEntries(
  read('settings.env')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split('=') as [string, string]),
);
const known = Object.assign({}, ...Object.values(listSettings(features))) as Record<string, unknown>;

/** KEDA's kinds, with the members that its scaler for PostgreSQL has. No package with their types is as small. */
const KEDA = `
interface ScaledObject {
  apiVersion: string; kind: string; metadata: ObjectMeta;
  spec: {
    scaleTargetRef: { name: string }; minReplicaCount?: number; maxReplicaCount?: number; pollingInterval?: number;
    advanced?: { horizontalPodAutoscalerConfig?: { behavior?: HorizontalPodAutoscalerBehavior } };
    triggers: {
      type: string; metricType?: string; authenticationRef?: { name: string };
      metadata: { query: string; targetQueryValue: string; activationTargetQueryValue?: string };
    }[];
  };
}
interface TriggerAuthentication {
  apiVersion: string; kind: string; metadata: ObjectMeta;
  spec: { secretTargetRef: { parameter: string; name: string; key: string }[] };
}`;

test('the manifests have the types of Kubernetes, which refuse a misspelt member', { timeout: 2 * MINUTE }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-manifests-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const typed = manifests.map(({ apiVersion, kind }, index) => {
    const module = apiVersion.includes('/') ? apiVersion : `core/${apiVersion}`;
    const type = apiVersion.startsWith('keda.sh/') ? kind : `import('kubernetes-types/${module}').${kind}`;
    return `export const manifest${index}: ${type} = ${JSON.stringify(manifests[index])};`;
  });
  const text = [
    `import type { ObjectMeta } from 'kubernetes-types/meta/v1';`,
    `import type { HorizontalPodAutoscalerBehavior } from 'kubernetes-types/autoscaling/v2';`,
    KEDA,
    ...typed,
    '// @ts-expect-error -- no type that is found would accept this',
    `export const misspelt: import('kubernetes-types/core/v1').PodSpec = { containers: [], terminationGrace: 1 };`,
  ];
  writeFileSync(join(folder, 'manifests.ts'), text.join('\n'));
  const options = '--ignoreConfig --strict --noEmit --skipLibCheck --module esnext --moduleResolution bundler';
  const tsc = join(ROOT, 'node_modules/.bin/tsc');
  const { stdout, status } = spawnSync(tsc, [...options.split(' '), '--types', '', 'manifests.ts'], {
    cwd: folder,
    encoding: 'utf8',
  });
  expect([status, stdout]).toEqual([0, '']);
});

describe('the replicas', () => {
  const { template, selector } = find('Deployment').spec;
  const [runtime] = template.spec.containers;

  test('have settings that there are, and no secret among them', () => {
    expect(Object.keys(settings).filter((name) => known[name] === undefined)).toEqual([]);
    expect(Object.keys(settings).filter((name) => /KEY|PASSWORD|_URL$/.test(name))).toEqual([]);
    expect(settings['MIGRATE']).toBe('off');
  });

  test('are killed only when the drain is over', () => {
    const { DRAIN_DELAY_MS, SHUTDOWN_GRACE_MS } = settings;
    const drainMs = Number(DRAIN_DELAY_MS) + Number(SHUTDOWN_GRACE_MS);
    expect(template.spec.terminationGracePeriodSeconds * 1000).toBeGreaterThanOrEqual(drainMs + 5000);
  });

  test('are asked at paths and ports that there are', () => {
    const probes = Object.entries(runtime).filter(([name]) => name.endsWith('Probe'));
    const asked = probes.map(([name, probe]) => [name, (probe as Container['aProbe'])?.httpGet]);
    expect(Object.fromEntries(asked)).toEqual({
      startupProbe: { path: '/health', port: 'http' },
      livenessProbe: { path: '/health', port: 'http' },
      readinessProbe: { path: '/ready', port: 'http' },
    });
    const paths = listAllOperations().map(({ path }) => path);
    expect(paths).toEqual(expect.arrayContaining(['/health', '/ready']));
    const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
    const [, port] = /^ENV .*PORT=(\d+)$/m.exec(dockerfile) ?? [];
    const { METRICS_PORT } = settings;
    expect(runtime.ports?.map(({ containerPort }) => String(containerPort))).toEqual([port, METRICS_PORT]);
  });

  test('are what service, budget and autoscaler select', () => {
    const { labels } = template.metadata;
    expect(selector.matchLabels).toEqual(labels);
    expect(find('Service').spec.selector).toEqual(labels);
    expect(find('PodDisruptionBudget').spec.selector.matchLabels).toEqual(labels);
    expect(find('ScaledObject').spec.scaleTargetRef.name).toBe(find('Deployment').metadata.name);
    const [trigger] = find('ScaledObject').spec.triggers;
    expect(trigger?.authenticationRef.name).toBe(find('TriggerAuthentication').metadata.name);
  });
});

describe('the job that migrates', () => {
  const { template } = find('Job').spec;
  const [job] = template.spec.containers;
  const [runtime] = find('Deployment').spec.template.spec.containers;
  const secretsOf = ({ envFrom }: Container) => envFrom.flatMap(({ secretRef }) => (secretRef ? [secretRef.name] : []));

  test('alone has the credential of the owner of the tables', () => {
    expect(secretsOf(runtime)).toEqual(['agent-runtime']);
    expect(secretsOf(job)).toEqual(['agent-runtime', 'agent-runtime-migration']);
  });

  test('is the image of the replicas, as limited, and no replica of the service', () => {
    expect([job.image, job.args]).toEqual([runtime.image, ['migrate']]);
    expect(job.securityContext).toEqual(runtime.securityContext);
    expect(template.metadata.labels).not.toEqual(find('Deployment').spec.template.metadata.labels);
    const pods = [template, find('Deployment').spec.template];
    expect(pods.map(({ spec }) => spec.enableServiceLinks)).toEqual([false, false]);
  });
});

test('kustomize builds it, and the example of the page with the autoscaler', ({ skip }) => {
  skip(!hasTool('kubectl'), 'there is no kubectl');
  const build = (folder: string) => execFileSync('kubectl', ['kustomize', folder], { encoding: 'utf8' });
  const deployment = (text: string) => {
    const built = parseAllDocuments(text).map((document) => document.toJS() as { kind: string; spec: object });
    return built.find(({ kind }) => kind === 'Deployment')?.spec;
  };
  expect(deployment(build(FOLDER))).toMatchObject({ replicas: 2 });
  const { text = '' } =
    findListings().find((each) => each.page === 'docs/deploy.md' && /components:/.test(each.text)) ?? {};
  const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-overlay-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  symlinkSync(ROOT, join(folder, 'agent-runtime'));
  const overlay = mkdtempSync(join(folder, 'mine-'));
  writeFileSync(join(overlay, 'kustomization.yaml'), text);
  const built = build(overlay);
  expect(deployment(built)).not.toHaveProperty('replicas');
  expect(built.match(/image: .*/g)).toEqual(Array(2).fill('image: registry.example.com/agents:1'));
});

describe('the query of the autoscaler', () => {
  const database = testDatabase();
  const [trigger] = find('ScaledObject').spec.triggers;
  const query = trigger?.metadata.query ?? '';
  let client: Client;
  beforeAll(async () => {
    client = new Client({ connectionString: database.url, options: '-c agent_runtime.all_users=on' });
    await client.connect();
    const invocation = (session: string, id: string, status: string) =>
      client.query(
        `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request)
         values ('a', 'u', $1, $2, $3, gen_random_uuid(), now(), '{}')`,
        [session, id, status],
      );
    for (const session of ['busy', 'waiting', 'done', 'due', 'later'])
      await client.query(`insert into sessions (app_name, user_id, id) values ('a', 'u', $1)`, [session]);
    await invocation('busy', 'e1', 'running');
    await invocation('busy', 'e2', 'queued');
    await invocation('busy', 'e3', 'queued');
    await invocation('waiting', 'e4', 'queued');
    await invocation('done', 'e5', 'succeeded');
    await invocation('done', 'e6', 'paused');
    await invocation('due', 'e7', 'queued');
    await invocation('later', 'e8', 'queued');
    await client.query(`
      update invocations set not_before = now() - interval '1 minute' where id = 'e7';
      update invocations set not_before = now() + interval '1 hour' where id = 'e8'`);
  });
  afterAll(() => client.end());

  test('counts each session that has work once, as an integer, and no run that waits for its time', async () => {
    const { rows, fields } = await client.query<{ count: string }>(query);
    expect(rows).toEqual([{ count: '3' }]);
    expect(fields.map(({ dataTypeID }) => dataTypeID)).toEqual([20]);
  });

  test('reads no ended invocation', async () => {
    await client.query('set enable_seqscan = off');
    const { rows } = await client.query<Record<string, string>>(`explain ${query}`);
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    expect(plan).toMatch(/using invocations_(?:queue|background|left|waiters)_idx/);
    expect(plan).toContain('invocations_lease_idx');
    expect(plan).not.toMatch(/Seq Scan on invocations|invocations_pkey|invocations_time_idx/);
  });
});

describe('the unit of systemd', () => {
  const unit = readFileSync(join(ROOT, 'deploy/agent-runtime.service'), 'utf8');

  test('starts Node with the flags of bin/launch, and lets it drain', () => {
    const [flags] = /--[^$"]*(?= "\$@")/.exec(readFileSync(join(ROOT, 'bin/launch'), 'utf8')) ?? expect.unreachable();
    expect(unit).toContain(`ExecStart=/usr/bin/node ${flags} node_modules/agent-runtime/dist/main.js start\n`);
    expect(unit).toMatch(/\nKillMode=mixed\n/);
    const { DRAIN_DELAY_MS, SHUTDOWN_GRACE_MS } = readConfig({});
    const [, seconds] = /\nTimeoutStopSec=(\d+)\n/.exec(unit) ?? [];
    expect(Number(seconds) * 1000).toBeGreaterThanOrEqual(DRAIN_DELAY_MS + SHUTDOWN_GRACE_MS + 5000);
  });

  test('has nothing that systemd warns of', ({ skip }) => {
    skip(!hasTool('systemd-analyze'), 'there is no systemd-analyze');
    const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-unit-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'agent-runtime.service');
    writeFileSync(file, unit.replace('/usr/bin/node', process.execPath));
    const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    expect([status, stdout, stderr]).toEqual([0, '', '']);
  });
});
