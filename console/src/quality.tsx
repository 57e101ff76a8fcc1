import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { api, ask, type Schemas } from './api.ts';
import { Chart } from './chart.tsx';
import { useScope, useViewer } from './context.tsx';
import { StartRun } from './create.tsx';
import type { paths } from './openapi.d.ts';
import { COST_UNIT, formatCost, formatCount } from './format.ts';
import { Badge, Empty, Facts, Folded, Loaded, SwitchedOff, Table, Time } from './ui.tsx';

const list = getRouteApi('/quality');
const route = getRouteApi('/quality/$appName/$runId');

const percent = (part: number) => `${Math.round(part * 100)} %`;

/** Where evaluation is answered: below `/apps` with `EVALS`, below `/dev`, as the document has it, with `DEV_UI` alone. */
function usePlace() {
  const { features } = useViewer().settings;
  return <const Path extends string>(path: Path) => (features.evals ? path.replace(/^\/dev/, '') : path) as Path;
}

/** How good the answers are: sets, runs, and scores of stored sessions. */
export function QualityPage() {
  const { settings } = useViewer();
  const { app } = useScope();
  const { evals, devUi } = settings.features;
  return (
    <>
      <h1>Quality</h1>
      {evals || devUi ? app && <OfApp app={app} /> : <SwitchedOff what="Evaluations" setting="EVALS" />}
    </>
  );
}

function OfApp({ app }: { app: string }) {
  const { set } = list.useSearch();
  const navigate = list.useNavigate();
  const place = usePlace();
  const sets = useQuery({
    queryKey: ['eval-sets', app],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/eval-sets'), {
          params: { path: { app_name: app }, query: { limit: 1000 } },
        }),
      ),
  });
  const runs = useQuery({
    queryKey: ['eval-runs', app, set],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/eval-runs'), {
          params: { path: { app_name: app }, query: { evalSetId: set, limit: 50 } },
        }),
      ),
    refetchInterval: 5_000,
  });
  return (
    <>
      <Loaded query={sets}>
        {({ evalSetIds }) => (
          <form className="filters" aria-label="What to show">
            <label>
              Evaluation set
              <select
                value={set ?? ''}
                onChange={(event) =>
                  void navigate({ search: (before) => ({ ...before, set: event.target.value || undefined }) })
                }
              >
                <option value="">all</option>
                {evalSetIds.map((id) => (
                  <option key={id}>{id}</option>
                ))}
              </select>
            </label>
          </form>
        )}
      </Loaded>
      {sets.data && <StartRun app={app} set={set} sets={sets.data.evalSetIds} place={place} />}
      {set !== undefined && <Trend app={app} set={set} />}
      <h2>Runs</h2>
      <Loaded query={runs}>
        {(items) =>
          items.length === 0 ? (
            <Empty>No run yet.</Empty>
          ) : (
            <Table label="Runs" head={['Run', 'Set', 'Status', 'Started', 'Model', 'Passed', 'Failed', 'Errors']}>
              {items.map(({ runId, evalSetId, status, createTime, modelName, counts }) => (
                <tr key={runId}>
                  <td>
                    <Link to="/quality/$appName/$runId" params={{ appName: app, runId }}>
                      {runId}
                    </Link>
                  </td>
                  <td>{evalSetId}</td>
                  <td>
                    <RunStatus status={status} counts={counts} />
                  </td>
                  <td>
                    <Time at={createTime} age />
                  </td>
                  <td>{modelName}</td>
                  <td className="number">
                    {formatCount(counts.passed)} of {formatCount(counts.total)}
                  </td>
                  <td className="number">{formatCount(counts.failed)}</td>
                  <td className="number">{formatCount(counts.errors)}</td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
      <h2>Scores of stored sessions</h2>
      <Scores app={app} />
    </>
  );
}

/** How a run stands; one that has ended is green only where each of its cases passed. */
function RunStatus({ status, counts }: Pick<Schemas['EvalRun'], 'status' | 'counts'>) {
  if (status !== 'done') return <Badge>{status}</Badge>;
  if (counts.errors > 0) return <Badge tone="bad">error</Badge>;
  if (counts.failed > 0) return <Badge tone="bad">failed</Badge>;
  return counts.passed === counts.total ? <Badge>passed</Badge> : <Badge tone="busy">not evaluated</Badge>;
}

type RunSummary =
  paths['/dev/apps/{app_name}/eval-runs/{run_id}/summary']['get']['responses']['200']['content']['application/json'];

/** How a case of a run stands: an error is no verdict, and never green. */
function CaseStatus({ of }: { of: RunSummary['cases'][number] }) {
  const { trials, passed, errors, unfinished, notEvaluated, passRate, flaky } = of;
  return (
    <>
      {trials > 0 && (
        <Badge tone={passed === trials ? 'good' : 'bad'}>
          {passed} of {trials}
        </Badge>
      )}
      {errors > 0 && <Badge tone="bad">{errors === 1 ? 'error' : `${errors} errors`}</Badge>}
      {unfinished > 0 && <Badge tone="busy">{unfinished} unfinished</Badge>}
      {notEvaluated > 0 && <Badge>{notEvaluated} not evaluated</Badge>}
      {passRate !== null && percent(passRate)} {flaky && <Badge tone="busy">flaky</Badge>}
    </>
  );
}

/** What a run says beside another; what it lost may be chance, and is not green. */
function Verdict({ comparison }: { comparison: NonNullable<RunSummary['comparison']> }) {
  const { regression, won, lost, missing } = comparison;
  const isUnsure = lost.length + missing.length > 0;
  return (
    <p>
      {regression && <Badge tone="bad">worse</Badge>}
      {!regression && isUnsure && <Badge tone="busy">no significant difference</Badge>}
      {!regression && !isUnsure && <Badge tone="good">not worse</Badge>}
      won {won.join(', ') || 'none'}, lost {lost.join(', ') || 'none'}
      {missing.length > 0 && `, without a verdict now ${missing.join(', ')}`}
    </p>
  );
}

function Trend({ app, set }: { app: string; set: string }) {
  const place = usePlace();
  const query = useQuery({
    queryKey: ['trend', app, set],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/eval-sets/{eval_set_id}/trend'), {
          params: { path: { app_name: app, eval_set_id: set }, query: { limit: 100 } },
        }),
      ),
  });
  return (
    <Loaded query={query}>
      {(runs) => {
        const sorted = runs.toSorted((one, other) => one.createTime - other.createTime);
        const rate = sorted.map(({ passed, total }) => (total > 0 ? passed / total : null));
        if (sorted.length === 0) return <Empty>This set has not run yet.</Empty>;
        return (
          <Chart
            title={`Passed, ${set}`}
            unit="moment"
            times={sorted.map(({ createTime }) => createTime)}
            lines={[{ name: 'passed', values: rate }]}
            format={percent}
          />
        );
      }}
    </Loaded>
  );
}

function Scores({ app }: { app: string }) {
  const place = usePlace();
  const query = useQuery({
    queryKey: ['scores', app],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/session-scores'), {
          params: { path: { app_name: app }, query: { limit: 50 } },
        }),
      ),
  });
  return (
    <Loaded query={query}>
      {(scores) =>
        scores.length === 0 ? (
          <Empty>No session was scored.</Empty>
        ) : (
          <Table label="Scores" head={['Session', 'User', 'Result', 'Scores', 'Rule']}>
            {scores.map((score) => (
              <tr
                key={`${score.userId} ${score.sessionId} ${score.lastSequence} ${score.ruleId} ${score.invocationId}`}
              >
                <td>
                  <Link
                    to="/sessions/$appName/$userId/$sessionId"
                    params={{ appName: app, userId: score.userId, sessionId: score.sessionId }}
                  >
                    {score.sessionId}
                  </Link>
                </td>
                <td>{score.userId}</td>
                <td>
                  <Badge>{statusText(score.finalEvalStatus)}</Badge>
                </td>
                <td>{score.overallEvalMetricResults.map(metricText).join(', ')}</td>
                <td>{score.ruleId ?? '–'}</td>
              </tr>
            ))}
          </Table>
        )
      }
    </Loaded>
  );
}

const statusText = (status: number | undefined) =>
  status === 1 ? 'passed' : status === 2 ? 'failed' : 'not evaluated';

function metricText(metric: object): string {
  const { metricName, score } = metric as { metricName?: string; score?: number | null };
  return `${metricName}: ${typeof score === 'number' ? score.toFixed(2) : '–'}`;
}

/** One run: its cases, what changed since another, and each case beside what was expected. */
export function RunPage() {
  const { appName: app, runId } = route.useParams();
  const { baseline, case: chosen } = route.useSearch();
  const navigate = route.useNavigate();
  const place = usePlace();
  const path = { app_name: app, run_id: runId };
  const run = useQuery({
    queryKey: ['eval-run', app, runId],
    queryFn: () => ask(api.GET(place('/dev/apps/{app_name}/eval-runs/{run_id}'), { params: { path } })),
    refetchInterval: ({ state: { data } }) => (data && /done|cancelled/.test(data.status) ? false : 2_000),
  });
  const summary = useQuery({
    // The counts move while the run goes on, and once more with its end.
    queryKey: ['eval-summary', app, runId, baseline, run.data?.status, run.data?.counts],
    queryFn: () =>
      ask(api.GET(place('/dev/apps/{app_name}/eval-runs/{run_id}/summary'), { params: { path, query: { baseline } } })),
    enabled: run.data !== undefined && run.data.status !== 'queued',
    placeholderData: (before, query) =>
      query?.queryKey[2] === runId && query.queryKey[3] === baseline ? before : undefined,
  });
  const others = useQuery({
    queryKey: ['eval-runs', app, run.data?.evalSetId],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/eval-runs'), {
          params: { path: { app_name: app }, query: { evalSetId: run.data?.evalSetId, limit: 50 } },
        }),
      ),
    enabled: run.data !== undefined,
  });
  return (
    <>
      <p>
        <Link to="/quality">Quality</Link>
      </p>
      <h1>Run {runId}</h1>
      <Loaded query={run}>
        {({ evalSetId, status, createTime, modelName, trials, counts }) => (
          <Facts
            facts={[
              ['Set', evalSetId],
              ['Status', <RunStatus key="status" status={status} counts={counts} />],
              ['Started', <Time key="time" at={createTime} />],
              ['Model', modelName],
              ['Trials', formatCount(trials)],
              ['Passed', `${formatCount(counts.passed)} of ${formatCount(counts.total)}`],
              [
                'Errors',
                <span key="errors" className={counts.errors > 0 ? 'bad' : ''}>
                  {formatCount(counts.errors)}
                </span>,
              ],
            ]}
          />
        )}
      </Loaded>
      <form className="filters" aria-label="Compare">
        <label>
          Compare with
          <select
            value={baseline ?? ''}
            onChange={(event) =>
              void navigate({ search: (before) => ({ ...before, baseline: event.target.value || undefined }) })
            }
          >
            <option value="">no run</option>
            {others.data
              ?.filter((other) => other.runId !== runId)
              .map((other) => (
                <option key={other.runId}>{other.runId}</option>
              ))}
          </select>
        </label>
      </form>
      <Loaded query={summary}>
        {({ cases, comparison }) => (
          <>
            {comparison && <Verdict comparison={comparison} />}
            <p className="hint">Costs are {COST_UNIT}.</p>
            <Table label="Cases" head={['Case', 'Passed', 'Scores', 'Cost', 'Why']}>
              {cases.map((each) => {
                const { evalId, scores, cost, reason } = each;
                return (
                  <tr key={evalId}>
                    <td>
                      <Link
                        to="/quality/$appName/$runId"
                        params={{ appName: app, runId }}
                        search={(before) => ({ ...before, case: evalId })}
                      >
                        {evalId}
                      </Link>
                    </td>
                    <td>
                      <CaseStatus of={each} />
                    </td>
                    <td>
                      <Folded label="Scores" value={scores} />
                    </td>
                    <td className="number">{cost === undefined ? '–' : formatCost(cost)}</td>
                    <td>{reason}</td>
                  </tr>
                );
              })}
            </Table>
          </>
        )}
      </Loaded>
      {chosen !== undefined && run.data && (
        <Case app={app} result={run.data.evalSetResultId} evalId={chosen} status={run.data.status} />
      )}
    </>
  );
}

interface CaseResult {
  evalId?: string;
  finalEvalStatus?: number;
  /** Why it could not be brought to an end. */
  error?: string;
  evalMetricResultPerInvocation?: {
    actualInvocation?: Turn;
    expectedInvocation?: Turn | null;
    evalMetricResults?: object[];
  }[];
}

interface Turn {
  userContent?: unknown;
  finalResponse?: unknown;
  intermediateData?: unknown;
}

/** A case beside its run, turn by turn. */
function Case(props: { app: string; result: string; evalId: string; status: string }) {
  const { app, result, evalId, status } = props;
  const place = usePlace();
  const query = useQuery({
    queryKey: ['eval-result', app, result, status],
    queryFn: () =>
      ask(
        api.GET(place('/dev/apps/{app_name}/eval-results/{eval_result_id}'), {
          params: { path: { app_name: app, eval_result_id: result } },
        }),
      ),
  });
  return (
    <section aria-label={`Case ${evalId}`}>
      <h2>Case {evalId}</h2>
      <Loaded query={query}>
        {({ evalCaseResults }) => {
          const found = ((evalCaseResults ?? []) as CaseResult[]).filter((each) => each.evalId === evalId);
          if (found.length === 0) return <Empty>It has no result yet.</Empty>;
          return found.map((trial, number) => (
            <div key={number}>
              <h3>
                Trial {number + 1}{' '}
                <Badge>{trial.error === undefined ? statusText(trial.finalEvalStatus) : 'error'}</Badge>
              </h3>
              {trial.error !== undefined && <p className="bad">{trial.error}</p>}
              {trial.evalMetricResultPerInvocation?.map((turn, index) => (
                <div key={index}>
                  <p className="hint">{(turn.evalMetricResults ?? []).map(metricText).join(', ')}</p>
                  <div className="halves">
                    <TurnView title="Expected" turn={turn.expectedInvocation} other={turn.actualInvocation} />
                    <TurnView title="Actual" turn={turn.actualInvocation} other={turn.expectedInvocation} />
                  </div>
                </div>
              ))}
            </div>
          ));
        }}
      </Loaded>
    </section>
  );
}

/** Leaves out the ids of calls: each run makes its own. */
function withoutIds(this: object, name: string, value: unknown): unknown {
  const isCall = 'name' in this && ('args' in this || 'response' in this);
  return isCall && name === 'id' ? undefined : value;
}

/** What a turn holds, as lines of JSON. */
const linesOf = (turn: Turn | null | undefined) =>
  turn
    ? JSON.stringify(
        { finalResponse: turn.finalResponse, intermediateData: turn.intermediateData },
        withoutIds,
        2,
      ).split('\n')
    : [];

/** One side of a turn; lines that the other side does not have are marked. */
function TurnView({
  title,
  turn,
  other,
}: {
  title: string;
  turn: Turn | null | undefined;
  other: Turn | null | undefined;
}) {
  const lines = linesOf(turn);
  const kept = other ? keptLines(lines, linesOf(other)) : new Set(lines.keys());
  return (
    <section aria-label={title}>
      <h4>{title}</h4>
      {lines.length === 0 ? (
        '–'
      ) : (
        <pre className="json" tabIndex={0}>
          {lines.map((line, index) => (kept.has(index) ? `${line}\n` : <mark key={index}>{`${line}\n`}</mark>))}
        </pre>
      )}
    </section>
  );
}

/** More lines than these are compared by their places alone. */
const MAX_COMPARED = 1_000;

/** Returns the places of the lines that both texts have, in the same order: a longest common subsequence. */
function keptLines(lines: string[], others: string[]): ReadonlySet<number> {
  if (lines.length * others.length > MAX_COMPARED ** 2)
    return new Set(lines.flatMap((line, index) => (line === others[index] ? [index] : [])));
  const width = others.length + 1;
  const lengths = new Uint16Array((lines.length + 1) * width);
  const at = (row: number, column: number) => lengths[row * width + column] ?? 0;
  for (let row = lines.length - 1; row >= 0; row -= 1)
    for (let column = others.length - 1; column >= 0; column -= 1)
      lengths[row * width + column] =
        lines[row] === others[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
  const kept = new Set<number>();
  for (let row = 0, column = 0; row < lines.length && column < others.length; ) {
    if (lines[row] === others[column]) {
      kept.add(row);
      row += 1;
      column += 1;
    } else if (at(row + 1, column) >= at(row, column + 1)) row += 1;
    else column += 1;
  }
  return kept;
}
