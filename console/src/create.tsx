import { queryOptions, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, ask, fetchBytes } from './api.ts';
import { appsQuery, callerQuery, useScope, useViewer } from './context.tsx';
import type { paths } from './openapi.d.ts';
import { type Schema, type Schemas, SchemaForm } from './schema-form.tsx';
import { Empty, Loaded, Refusal } from './ui.tsx';

/** Forms that make something, of the schemas of the service's own document. */

interface Document {
  paths: Record<string, Record<string, { requestBody?: { content: Record<string, { schema: Schema }> } }>>;
  components: { schemas: Schemas };
}

const documentQuery = queryOptions({
  queryKey: ['document'],
  queryFn: async () => JSON.parse(await (await fetchBytes('/openapi.json')).text()) as Document,
  staleTime: Infinity,
});

interface CreateProps {
  /** The words of the button. */
  label: string;
  scope: 'admin' | 'develop' | 'invoke';
  method: 'post' | 'put';
  /** The path of the operation; evaluation is below `/dev` in the document of a service for development alone. */
  path: string;
  /** The members that have a field, with what the page knows of them; those below `more` are folded. */
  fields: Record<string, Schema>;
  more?: string[];
  create: (body: Record<string, unknown>) => Promise<unknown>;
}

/** A form that is opened by who may use it; others read what it needs. */
function Create(props: CreateProps) {
  const { label, scope } = props;
  const [isOpen, setOpen] = useState(false);
  const caller = useQuery(callerQuery);
  if (!caller.data) return null;
  if (!caller.data.scopes.includes(scope))
    return (
      <Refusal>
        “{label}” needs the scope “{scope}”, which your credential does not have.
      </Refusal>
    );
  return (
    <details className="create" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{label}</summary>
      {isOpen && <CreateForm {...props} onDone={() => setOpen(false)} />}
    </details>
  );
}

function CreateForm(props: CreateProps & { onDone: () => void }) {
  const { label, method, path, fields, more = [], create, onDone } = props;
  const queries = useQueryClient();
  const document = useQuery(documentQuery);
  const mutation = useMutation({
    mutationFn: create,
    onSuccess: async () => {
      onDone();
      await queries.invalidateQueries();
    },
  });
  return (
    <Loaded query={document}>
      {({ paths: operations, components: { schemas } }) => {
        const body =
          (operations[path] ?? operations[path.replace(/^\/dev/, '')])?.[method]?.requestBody?.content[
            'application/json'
          ]?.schema ?? {};
        const { properties = {}, required = [] } = body.$ref
          ? (schemas[body.$ref.split('/').at(-1) ?? ''] ?? {})
          : body;
        const pick = (name: string): [string, Schema][] =>
          properties[name] ? [[name, { ...properties[name], ...fields[name] }]] : [];
        const names = [...Object.keys(fields), ...more];
        const asked = names.filter((name) => required.includes(name));
        const schema = { properties: Object.fromEntries(names.flatMap(pick)), required: asked };
        return (
          <SchemaForm
            schema={schema}
            schemas={schemas}
            action={label}
            folded={more}
            isBusy={mutation.isPending}
            error={mutation.error}
            onAnswer={(values) => mutation.mutate(values ?? {})}
          />
        );
      }}
    </Loaded>
  );
}

type Body<Path extends keyof paths, Method extends 'post' | 'put'> =
  paths[Path] extends Record<Method, { requestBody: { content: { 'application/json': infer Content } } }>
    ? Content
    : never;

export function SetBudget({ app }: { app: string }) {
  return (
    <Create
      label="Set a budget"
      scope="admin"
      method="put"
      path="/apps/{app_name}/budgets"
      fields={{
        appliesTo: { title: 'Applies to' },
        forUser: { title: 'User' },
        period: { title: 'Each' },
        maxInvocations: { title: 'Most invocations' },
        maxTokens: { title: 'Most tokens' },
        maxCost: { title: 'Most cost' },
      }}
      more={['webhookId']}
      create={(body) =>
        ask(
          api.PUT('/apps/{app_name}/budgets', {
            params: { path: { app_name: app } },
            body: body as Body<'/apps/{app_name}/budgets', 'put'>,
          }),
        )
      }
    />
  );
}

export function MakeCronjob() {
  const { me } = useViewer();
  const { app, user } = useScope();
  const apps = useQuery(appsQuery);
  return (
    <Create
      label="Make a cronjob"
      scope="invoke"
      method="post"
      path="/harness/cronjobs"
      fields={{
        name: { title: 'Name' },
        prompt: { title: 'Prompt' },
        schedule: { title: 'Schedule' },
        appName: { title: 'Application', enum: apps.data ?? [], default: app },
        ...(me === undefined && { ownerId: { title: 'Owner', default: user } }),
      }}
      more={[
        'until',
        'maxRuns',
        'timeoutSeconds',
        'missedRuns',
        'overlap',
        'sessionPolicy',
        'sessionId',
        'maxAttempts',
        'retryPauseSeconds',
        'maxRetryPauseSeconds',
        'maxFailures',
        'webhookUrl',
      ]}
      create={(body) => ask(api.POST('/harness/cronjobs', { body: body as Body<'/harness/cronjobs', 'post'> }))}
    />
  );
}

const RUNS = '/dev/apps/{app_name}/eval-runs';

interface StartRunProps {
  app: string;
  /** The chosen set, and all of them. */
  set: string | undefined;
  sets: string[];
  /** Where this service answers a path of the document. */
  place: <const Path extends string>(path: Path) => Path;
}

export function StartRun({ app, set, sets, place }: StartRunProps) {
  const navigate = useNavigate();
  const metrics = useQuery({
    queryKey: ['metrics-info', app],
    queryFn: () => ask(api.GET(place('/dev/apps/{app_name}/metrics-info'), { params: { path: { app_name: app } } })),
  });
  if (sets.length === 0) return <Empty>A run needs an evaluation set: sessions are added to one as cases.</Empty>;
  const start = async (body: Record<string, unknown>) => {
    const { runId } = await ask(
      api.POST(place(RUNS), { params: { path: { app_name: app } }, body: body as Body<typeof RUNS, 'post'> }),
    );
    await navigate({ to: '/quality/$appName/$runId', params: { appName: app, runId } });
  };
  const known = metrics.data?.metricsInfo ?? [];
  const metric: Schema = {
    properties: {
      metricName: {
        title: 'Metric',
        type: 'string',
        enum: known.map(({ metricName }) => metricName),
        description: 'What the turns are scored by.',
      },
      threshold: { title: 'Threshold', type: 'number', description: 'From which score on it passes.' },
    },
    required: ['metricName', 'threshold'],
  };
  return (
    <Create
      key={`${app} ${set} ${known.length}`}
      label="Start a run"
      scope="develop"
      method="post"
      path={RUNS}
      fields={{
        evalSetId: { title: 'Evaluation set', enum: sets, ...(set !== undefined && { default: set }) },
        evalMetrics: { title: 'Metrics', items: metric },
        trials: { title: 'Trials' },
      }}
      more={['evalCaseIds', 'modelExecutionMode', 'toolExecutionMode', 'parallelism', 'maxJudgeTokens']}
      create={start}
    />
  );
}
