import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { api, ask } from './api.ts';
import { Chart } from './chart.tsx';
import { useScope, useViewer } from './context.tsx';
import { formatCompact, formatCost, formatCount, formatSeconds } from './format.ts';
import { Badge, Empty, Loaded, Loading, Problem, Table } from './ui.tsx';

const route = getRouteApi('/usage');
const DAYS = [1, 7, 30, 90] as const;
const BY = ['model', 'version', 'user'] as const;
const MAX_ROWS = 1_000;

interface Row {
  period?: string;
  userId?: string;
  model?: string;
  version?: string;
  invocations: number;
  failed: number;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
  cost?: number;
  seconds: number;
  p95Seconds?: number;
}

/** What was used, over time and by what. */
export function UsagePage() {
  const { app, user, isPending, error, refetch } = useScope();
  const { me } = useViewer();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const days = DAYS.find((each) => each === search.days) ?? 30;
  const by = BY.find((each) => each === search.by) ?? 'model';
  const of = search.of ?? (me === undefined ? 'app' : 'user');
  const owner = of === 'user' ? user : undefined;
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (isPending) return <Loading />;
  const set = (values: { days?: number; by?: string; of?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...values }) });
  const unit = days === 1 ? 'hour' : 'day';
  return (
    <>
      <h1>Use</h1>
      <form className="filters" aria-label="What to show">
        <label>
          Of
          <select value={of} onChange={(event) => set({ of: event.target.value })}>
            <option value="app">all users of {app}</option>
            {user && <option value="user">{user}</option>}
          </select>
        </label>
        <label>
          Last
          <select value={days} onChange={(event) => set({ days: Number(event.target.value) })}>
            {DAYS.map((each) => (
              <option key={each} value={each}>
                {each === 1 ? '24 hours' : `${each} days`}
              </option>
            ))}
          </select>
        </label>
        <label>
          Table by
          <select value={by} onChange={(event) => set({ by: event.target.value })}>
            {BY.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      </form>
      <OverTime app={app} owner={owner} days={days} unit={unit} />
      <h2>By {by}</h2>
      <Rows app={app} owner={owner} days={days} by={by} />
      {of === 'app' && (
        <>
          <h2>Budgets</h2>
          <Budgets app={app} />
        </>
      )}
    </>
  );
}

interface Range {
  app: string;
  owner: string | undefined;
  days: number;
}

function useUsage({ app, owner, days }: Range, by: string) {
  return useQuery({
    queryKey: ['usage', app, owner, days, by],
    queryFn: async () => {
      const from = new Date(Date.now() - days * 86_400_000).toISOString();
      const query = { from, by, limit: MAX_ROWS };
      const answer =
        owner === undefined
          ? api.GET('/apps/{app_name}/usage', { params: { path: { app_name: app }, query } })
          : api.GET('/apps/{app_name}/users/{user_id}/usage', {
              params: { path: { app_name: app, user_id: owner }, query },
            });
      return ((await ask(answer)) as { items: Row[] }).items;
    },
    refetchInterval: 30_000,
  });
}

const sum = (rows: Row[], pick: (row: Row) => number | undefined) =>
  rows.reduce((total, row) => total + (pick(row) ?? 0), 0);

function OverTime({ unit, ...range }: Range & { unit: 'day' | 'hour' }) {
  const query = useUsage(range, unit);
  return (
    <Loaded query={query}>
      {(items) => {
        const rows = items.toSorted((one, other) => (one.period ?? '').localeCompare(other.period ?? ''));
        if (rows.length === 0) return <Empty>Nothing was used in this time.</Empty>;
        const times = rows.map(({ period = '' }) => Date.parse(period) / 1000);
        const line = (name: string, pick: (row: Row) => number | undefined) => ({
          name,
          values: rows.map((row) => pick(row) ?? null),
        });
        return (
          <>
            <div className="cards">
              <Card name="Invocations" value={formatCount(sum(rows, (row) => row.invocations))} />
              <Card name="Failed" value={formatCount(sum(rows, (row) => row.failed))} />
              <Card name="Model calls" value={formatCount(sum(rows, (row) => row.llmCalls))} />
              <Card name="Tokens in" value={formatCompact(sum(rows, (row) => row.promptTokens))} />
              <Card name="Tokens out" value={formatCompact(sum(rows, (row) => row.outputTokens))} />
              <Card name="Cost, in the unit of the prices" value={formatCost(sum(rows, (row) => row.cost))} />
            </div>
            <p className="hint">Each point is one {unit} of UTC.</p>
            <div className="charts">
              <Chart
                title="Invocations"
                times={times}
                lines={[line('all', (row) => row.invocations), line('failed', (row) => row.failed)]}
                format={formatCompact}
              />
              <Chart
                title="Tokens"
                times={times}
                lines={[line('in', (row) => row.promptTokens), line('out', (row) => row.outputTokens)]}
                format={formatCompact}
              />
              <Chart
                title="Time of an invocation"
                times={times}
                lines={[
                  line('mean', (row) => (row.invocations > 0 ? row.seconds / row.invocations : 0)),
                  line('95 of 100 within', (row) => row.p95Seconds),
                ]}
                format={formatSeconds}
              />
              {sum(rows, (row) => row.cost) > 0 && (
                <Chart title="Cost" times={times} lines={[line('cost', (row) => row.cost)]} format={formatCost} />
              )}
            </div>
            <details>
              <summary>As a table</summary>
              <UsageTable name={unit} rows={rows} nameOf={({ period }) => period} />
            </details>
          </>
        );
      }}
    </Loaded>
  );
}

const Card = ({ name, value }: { name: string; value: string }) => (
  <div className="card">
    <strong>{value}</strong>
    {name}
  </div>
);

function Rows({ by, ...range }: Range & { by: (typeof BY)[number] }) {
  const query = useUsage(range, by);
  const nameOf = ({ model, version, userId }: Row) => ({ model, version, user: userId })[by];
  return (
    <Loaded query={query}>
      {(rows) => (rows.length === 0 ? <Empty>Nothing.</Empty> : <UsageTable name={by} rows={rows} nameOf={nameOf} />)}
    </Loaded>
  );
}

function UsageTable(props: { name: string; rows: Row[]; nameOf: (row: Row) => string | undefined }) {
  const { name, rows, nameOf } = props;
  return (
    <Table
      label={`Use by ${name}`}
      head={[name, 'Invocations', 'Failed', 'Model calls', 'Tokens in', 'Tokens out', 'Cost', 'Mean time', 'p95']}
    >
      {rows.map((row) => (
        <tr key={nameOf(row) ?? ''}>
          <td>{nameOf(row) ?? 'unknown'}</td>
          <td className="number">{formatCount(row.invocations)}</td>
          <td className="number">{formatCount(row.failed)}</td>
          <td className="number">{formatCount(row.llmCalls)}</td>
          <td className="number">{formatCount(row.promptTokens)}</td>
          <td className="number">{formatCount(row.outputTokens)}</td>
          <td className="number">{row.cost === undefined ? '–' : formatCost(row.cost)}</td>
          <td className="number">{row.invocations > 0 ? formatSeconds(row.seconds / row.invocations) : '–'}</td>
          <td className="number">{row.p95Seconds === undefined ? '–' : formatSeconds(row.p95Seconds)}</td>
        </tr>
      ))}
    </Table>
  );
}

function Budgets({ app }: { app: string }) {
  const query = useQuery({
    queryKey: ['budgets', app],
    queryFn: () => ask(api.GET('/apps/{app_name}/budgets', { params: { path: { app_name: app } } })),
  });
  const limit = (value: number | null | undefined) =>
    value === null || value === undefined ? '–' : formatCount(value);
  return (
    <Loaded query={query}>
      {(budgets) =>
        budgets.length === 0 ? (
          <Empty>No budget is set.</Empty>
        ) : (
          <Table label="Budgets" head={['Of', 'Each', 'Invocations', 'Tokens', 'Cost']}>
            {budgets.map((budget) => (
              <tr key={`${budget.appliesTo} ${budget.forUser} ${budget.period}`}>
                <td>{budget.forUser ?? (budget.appliesTo === 'app' ? 'the application' : 'every user')}</td>
                <td>
                  <Badge>{budget.period}</Badge>
                </td>
                <td className="number">{limit(budget.maxInvocations)}</td>
                <td className="number">{limit(budget.maxTokens)}</td>
                <td className="number">{limit(budget.maxCost)}</td>
              </tr>
            ))}
          </Table>
        )
      }
    </Loaded>
  );
}
