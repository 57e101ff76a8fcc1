import { queryOptions, useQueries, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, ask, type Event, inPath, type Schemas, type SessionName } from './api.ts';
import { formatCost, formatCount, formatSeconds } from './format.ts';
import { Badge, Empty, Loading, Problem, Table, Time } from './ui.tsx';

export type Invocation = Schemas['Invocation'];

export const isOpen = ({ status }: Invocation) => /^(queued|running|paused)$/.test(status);

/** How long it took, or has taken until now. */
export const secondsOf = ({ startTime, endTime }: Invocation) =>
  startTime === undefined ? undefined : (endTime ?? Date.now() / 1000) - startTime;

/** Events that are looked through for those of an invocation. */
const RECENT = 500;

/** The prices of models; without the scope `admin` there are none to see. */
const pricesQuery = queryOptions({
  queryKey: ['prices'],
  queryFn: () => ask(api.GET('/model-prices')),
  retry: false,
  staleTime: 60_000,
});

/** Returns what the stored answers of models in these events cost; `undefined` where no price fits one of them. */
function costOf(events: Event[], prices: Schemas['ModelPrice'][]): number | undefined {
  const used = events.filter(({ usageMetadata }) => usageMetadata);
  const costs = used.map(({ modelVersion, usageMetadata }) => {
    const fits = prices.filter(({ model }) => model === '*' || modelVersion?.startsWith(model));
    const price = fits.toSorted((one, other) => length(other) - length(one))[0];
    const { promptTokenCount, candidatesTokenCount, thoughtsTokenCount } = usageMetadata ?? {};
    const output = (candidatesTokenCount ?? 0) + (thoughtsTokenCount ?? 0);
    return price && ((promptTokenCount ?? 0) * price.promptPrice + output * price.outputPrice) / 1e6;
  });
  return costs.reduce<number | undefined>(
    (sum, cost) => (sum === undefined || cost === undefined ? undefined : sum + cost),
    0,
  );
}
const length = ({ model }: Schemas['ModelPrice']) => (model === '*' ? 0 : model.length);

/** What an invocation has cost so far by its stored events, at the prices of now. */
export function Cost({ invocation: { appName, userId, sessionId, id, llmCalls } }: { invocation: Invocation }) {
  const prices = useQuery(pricesQuery);
  const events = useQuery({
    queryKey: ['cost', appName, userId, sessionId, id, llmCalls],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}', {
          params: {
            path: { app_name: appName, user_id: userId, session_id: sessionId },
            query: { numRecentEvents: RECENT },
          },
        }),
      ),
    enabled: prices.data !== undefined && prices.data.length > 0,
  });
  const own = events.data?.events?.filter(({ invocationId }) => invocationId === id);
  const cost = prices.data && own && costOf(own, prices.data);
  return <>{cost === undefined ? '–' : formatCost(cost)}</>;
}

/** The invocations of sessions, the newest first; with `only` those that are open. */
export function InvocationList({ names, only = false }: { names: SessionName[]; only?: boolean }) {
  const queries = useQueries({
    queries: names.map((name) => ({
      queryKey: ['invocations', name],
      queryFn: () =>
        ask(
          api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations', {
            params: { path: inPath(name), query: { limit: names.length === 1 ? 100 : 5 } },
          }),
        ),
      refetchInterval: 5_000,
    })),
  });
  const failed = queries.find(({ error }) => error);
  if (failed?.error) return <Problem error={failed.error} retry={() => void failed.refetch()} />;
  if (queries.some(({ isPending }) => isPending)) return <Loading />;
  const all = queries
    .flatMap(({ data = [] }) => data)
    .filter((each) => !only || isOpen(each))
    .sort((one, other) => other.createTime - one.createTime);
  if (all.length === 0) return <Empty>{only ? 'Nothing runs or waits.' : 'No invocation.'}</Empty>;
  return (
    <Table
      label="Invocations"
      head={[
        'Invocation',
        'Status',
        'Requested',
        'Took',
        'Model calls',
        'Tool calls',
        'Tokens in',
        'Tokens out',
        'Cost so far',
      ]}
    >
      {all.map((each) => (
        <tr key={each.id}>
          <td>
            <Link
              to="/invocations/$appName/$userId/$sessionId/$invocationId"
              params={{
                appName: each.appName,
                userId: each.userId,
                sessionId: each.sessionId,
                invocationId: each.id,
              }}
            >
              {each.id}
            </Link>
            {names.length > 1 && <div className="hint">session {each.sessionId}</div>}
          </td>
          <td>
            <Badge>{each.status}</Badge>
          </td>
          <td>
            <Time at={each.createTime} age />
          </td>
          <td className="number">{toText(secondsOf(each), formatSeconds)}</td>
          <td className="number">{formatCount(each.llmCalls)}</td>
          <td className="number">{formatCount(each.toolCalls)}</td>
          <td className="number">{formatCount(each.promptTokens)}</td>
          <td className="number">{formatCount(each.outputTokens)}</td>
          <td className="number">{isOpen(each) && <Cost invocation={each} />}</td>
        </tr>
      ))}
    </Table>
  );
}

const toText = (value: number | undefined, format: (value: number) => string) =>
  value === undefined ? '–' : format(value);
