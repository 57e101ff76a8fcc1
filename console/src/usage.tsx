import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, askWhole, type Schemas } from './api.ts';
import { Chart } from './chart.tsx';
import { useScope, useViewer } from './context.tsx';
import { SetBudget } from './create.tsx';
import {
  COST_UNIT,
  formatCompact,
  formatCost,
  formatCount,
  formatDayOfUtc,
  formatMoment,
  formatSeconds,
} from './format.ts';
import { Failed } from './invocation-list.tsx';
import { Ask, Badge, Empty, ForUser, Loaded, Loading, Problem, Table } from './ui.tsx';

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
      <h1>Usage</h1>
      <form className="filters" aria-label="What to show">
        <label>
          Of
          <select value={of} onChange={(event) => set({ of: event.target.value })}>
            <option value="app">all users of {app}</option>
            <option value="user">{of === 'user' && user ? user : 'one user'}</option>
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
      {of === 'user' && user === '' && <ForUser>{() => null}</ForUser>}
      {(of === 'app' || user !== '') && <Shown app={app} owner={owner} days={days} unit={unit} by={by} />}
    </>
  );
}

function Shown({ by, unit, ...range }: Range & { by: (typeof BY)[number]; unit: 'day' | 'hour' }) {
  return (
    <>
      <OverTime {...range} unit={unit} />
      <h2>By {by}</h2>
      {by === 'model' && (
        <p className="hint">An invocation may call several models: invocations and their time are counted above.</p>
      )}
      <Rows {...range} by={by} />
      {range.owner === undefined && (
        <>
          <h2>Budgets</h2>
          <Budgets app={range.app} />
          <SetBudget app={range.app} />
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

/** The range as the list of invocations has it. */
const toFilter = ({ app, owner, days }: Range) => ({
  app,
  ...(owner !== undefined && { of: owner }),
  after: new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10),
});

const namesOf = ({ userId, version }: Row) => ({
  ...(userId !== undefined && { of: userId }),
  ...(version !== undefined && { version }),
});

const sum = (rows: Row[], pick: (row: Row) => number | undefined) =>
  rows.reduce((total, row) => total + (pick(row) ?? 0), 0);

function OverTime({ unit, ...range }: Range & { unit: 'day' | 'hour' }) {
  const query = useUsage(range, unit);
  return (
    <Loaded query={query}>
      {(items) => {
        if (items.length === 0) return <Empty>Nothing was used in this time.</Empty>;
        const rows = everyPeriod(items, unit, range.days);
        const times = rows.map(({ period = '' }) => Date.parse(period) / 1000);
        const line = (name: string, pick: (row: Row) => number | undefined) => ({
          name,
          values: rows.map((row) => pick(row) ?? null),
        });
        return (
          <>
            <div className="cards">
              <Card name="Invocations" value={formatCount(sum(rows, (row) => row.invocations))} />
              <Card name="Failed" value={<Failed count={sum(rows, (row) => row.failed)} {...toFilter(range)} />} />
              <Card name="Model calls" value={formatCount(sum(rows, (row) => row.llmCalls))} />
              <Card name="Tokens in" value={formatCompact(sum(rows, (row) => row.promptTokens))} />
              <Card name="Tokens out" value={formatCompact(sum(rows, (row) => row.outputTokens))} />
              <Card name={`Cost, ${COST_UNIT}`} value={formatCost(sum(rows, (row) => row.cost))} />
            </div>
            <p className="hint">
              Failed: with an error, or interrupted; what was cancelled is not counted there. Times are those of work,
              without waits. Each point is one {unit}
              {unit === 'day' && ' of UTC'}.
            </p>
            <div className="charts">
              <Chart
                title="Invocations"
                unit={unit}
                times={times}
                lines={[line('all', (row) => row.invocations), line('failed', (row) => row.failed)]}
                format={formatCompact}
              />
              <Chart
                title="Tokens"
                unit={unit}
                times={times}
                lines={[line('in', (row) => row.promptTokens), line('out', (row) => row.outputTokens)]}
                format={formatCompact}
              />
              <Chart
                title="Work of an invocation"
                unit={unit}
                times={times}
                lines={[line('mean', meanOf), line(P95, (row) => row.p95Seconds)]}
                format={formatSeconds}
              />
              {sum(rows, (row) => row.cost) > 0 && (
                <Chart
                  title={`Cost, ${COST_UNIT}`}
                  unit={unit}
                  times={times}
                  lines={[line('cost', (row) => row.cost)]}
                  format={formatCost}
                />
              )}
            </div>
            <details>
              <summary>As a table</summary>
              <UsageTable
                name={unit === 'day' ? 'day of UTC' : unit}
                rows={items}
                nameOf={({ period }) => period && nameOfPeriod(period, unit)}
              />
            </details>
          </>
        );
      }}
    </Loaded>
  );
}

const UNIT_MS = { day: 86_400_000, hour: 3_600_000 };
const nameOfPeriod = (period: string, unit: 'day' | 'hour') =>
  unit === 'day' ? formatDayOfUtc(period) : formatMoment(period);

/** A row for each day or hour, also for those in which nothing was used. */
function everyPeriod(items: Row[], unit: 'day' | 'hour', days: number): Row[] {
  const known = new Map(items.map((row) => [Date.parse(row.period ?? ''), row]));
  const step = UNIT_MS[unit];
  const now = Math.floor(Date.now() / step) * step;
  const none = { invocations: 0, failed: 0, llmCalls: 0, promptTokens: 0, outputTokens: 0, seconds: 0 };
  const count = (days * UNIT_MS.day) / step + 1;
  const periods = Array.from({ length: count }, (_none, index) => now - (count - 1 - index) * step);
  return periods.map((at) => known.get(at) ?? { ...none, period: new Date(at).toISOString() });
}

const Card = ({ name, value }: { name: string; value: ReactNode }) => (
  <div className="card">
    <strong>{value}</strong>
    {name}
  </div>
);

function Rows({ by, ...range }: Range & { by: (typeof BY)[number] }) {
  const query = useUsage(range, by);
  const nameOf = ({ model, version, userId }: Row) => ({ model, version, user: userId })[by];
  // Invocations have no model: what is left of that row are calls that no stored event names.
  const isShown = (row: Row) => by !== 'model' || row.model !== undefined || row.llmCalls > 0;
  return (
    <Loaded query={query}>
      {(all) => {
        const rows = all.filter(isShown);
        return rows.length === 0 ? (
          <Empty>Nothing.</Empty>
        ) : (
          <UsageTable name={by} rows={rows} nameOf={nameOf} range={range} />
        );
      }}
    </Loaded>
  );
}

const P95 = '95 of 100 within';
const meanOf = ({ invocations, seconds }: Row) => (invocations > 0 ? seconds / invocations : undefined);
const toText = (value: number | undefined, format: (value: number) => string) =>
  value === undefined ? '–' : format(value);
const OF_CALLS: [string, (row: Row) => string][] = [
  ['Model calls', ({ llmCalls }) => formatCount(llmCalls)],
  ['Tokens in', ({ promptTokens }) => formatCount(promptTokens)],
  ['Tokens out', ({ outputTokens }) => formatCount(outputTokens)],
  ['Cost', ({ cost }) => toText(cost, formatCost)],
];
const OF_INVOCATIONS: [string, (row: Row) => string][] = [
  ['Invocations', ({ invocations }) => formatCount(invocations)],
  ['Failed', ({ failed }) => formatCount(failed)],
  ...OF_CALLS,
  ['Mean time', (row) => toText(meanOf(row), formatSeconds)],
  [P95, ({ p95Seconds }) => toText(p95Seconds, formatSeconds)],
];

/** @param props.range - that of rows of users or versions, whose failed invocations are a link */
function UsageTable(props: { name: string; rows: Row[]; nameOf: (row: Row) => string | undefined; range?: Range }) {
  const { name, rows, nameOf, range } = props;
  const columns = name === 'model' ? OF_CALLS : OF_INVOCATIONS;
  const unnamed = name === 'model' ? 'calls without a stored answer' : 'unknown';
  return (
    <Table
      label={`Usage by ${name}`}
      head={[name.charAt(0).toUpperCase() + name.slice(1), ...columns.map(([head]) => head)]}
    >
      {rows.map((row) => (
        <tr key={nameOf(row) ?? ''}>
          <td>{nameOf(row) ?? unnamed}</td>
          {columns.map(([head, format]) => (
            <td key={head} className="number">
              {head === 'Failed' && range ? (
                <Failed count={row.failed} {...toFilter(range)} {...namesOf(row)} />
              ) : (
                format(row)
              )}
            </td>
          ))}
        </tr>
      ))}
    </Table>
  );
}

type UsedBudget = Schemas['UsedBudget'];

function Budgets({ app }: { app: string }) {
  const { user } = useScope();
  const query = useInfiniteQuery({
    queryKey: ['budgets', app, user],
    queryFn: ({ pageParam: cursor }) =>
      askWhole(
        api.GET('/apps/{app_name}/budgets', {
          params: { path: { app_name: app }, query: { ofUser: user || undefined, limit: 100, cursor } },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ cursor }) => cursor,
    refetchInterval: 30_000,
  });
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const budgets = pages.flatMap(({ data }) => data);
        if (budgets.length === 0) return <Empty>No budget is set.</Empty>;
        return (
          <>
            <Table label="Budgets" head={['Of', 'Each', 'Invocations', 'Tokens', `Cost, ${COST_UNIT}`, '']}>
              {budgets.map((budget) => (
                <tr key={`${budget.appliesTo} ${budget.forUser} ${budget.period}`}>
                  <td>
                    {budget.forUser ?? (budget.appliesTo === 'app' ? 'the application' : 'every user')}
                    {budget.appliesTo === 'users' && budget.used && <div className="hint">used by {user}</div>}
                  </td>
                  <td>
                    <Badge>{budget.period}</Badge> {budget.isUsedUp && <Badge tone="bad">used up</Badge>}
                  </td>
                  <Used name="invocations" used={budget.used?.invocations} most={budget.maxInvocations} />
                  <Used name="tokens" used={budget.used?.tokens} most={budget.maxTokens} />
                  <Used name="cost" used={budget.used?.cost} most={budget.maxCost} format={formatCost} />
                  <td>
                    <RemoveBudget app={app} budget={budget} />
                  </td>
                </tr>
              ))}
            </Table>
            {query.hasNextPage && <Button onPress={() => void query.fetchNextPage()}>More budgets</Button>}
          </>
        );
      }}
    </Loaded>
  );
}

interface UsedProps {
  name: string;
  used: number | undefined;
  most: number | null | undefined;
  format?: (value: number) => string;
}

/** What is used of a maximum, in this day or month. */
function Used({ name, used, most, format = formatCount }: UsedProps) {
  if (most === null || most === undefined) return <td className="number">–</td>;
  if (used === undefined) return <td className="number">at most {format(most)}</td>;
  return (
    <td className="number">
      {format(used)} of {format(most)}
      <br />
      <meter
        aria-label={`${name} used`}
        min={0}
        max={Math.max(most, 1e-9)}
        high={most * 0.8}
        optimum={0}
        value={used}
      />
    </td>
  );
}

function RemoveBudget({ app, budget: { appliesTo, forUser, period } }: { app: string; budget: UsedBudget }) {
  const queries = useQueryClient();
  const remove = async () => {
    const query = { appliesTo, period, ...(forUser && { forUser }) };
    await ask(api.DELETE('/apps/{app_name}/budgets', { params: { path: { app_name: app }, query } }));
    await queries.invalidateQueries({ queryKey: ['budgets'] });
  };
  return (
    <Ask label="Remove" title="Remove this budget?" action="Remove it" run={remove} isDangerous>
      <p>From then on nothing limits what it limited. What was used stays counted.</p>
    </Ask>
  );
}
