import { keepPreviousData, queryOptions, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Button } from 'react-aria-components';
import { api, ApiError, ask, type Event, type Schemas } from './api.ts';
import { formatCost, formatCount, formatSeconds, toSeconds } from './format.ts';
import { Badge, Empty, Loaded, Refusal, Table, Time } from './ui.tsx';

export type Invocation = Schemas['Invocation'];

export const isOpen = ({ status }: Invocation) => /^(queued|running|paused)$/.test(status);

/** How long it took, or has taken until now. */
export const secondsOf = ({ startTime, endTime }: Invocation) =>
  startTime === undefined ? undefined : (endTime ?? Date.now() / 1000) - startTime;

/** Events that are looked through for those of an invocation. */
const RECENT = 500;

/** The prices of models; without the scope `admin` there are none to see. */
export const pricesQuery = queryOptions({
  queryKey: ['prices'],
  queryFn: () => ask(api.GET('/model-prices')),
  retry: false,
  staleTime: 60_000,
});

/** Returns what the stored answers of models in these events cost; `undefined` where no price fits one of them. */
export function costOf(events: Event[], prices: Schemas['ModelPrice'][]): number | undefined {
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

const PAGE_SIZE = 50;

/** What a list is narrowed by. */
export interface InvocationFilter {
  text?: string | undefined;
  /** Statuses with commas between. */
  status?: string | undefined;
  error?: string | undefined;
  agent?: string | undefined;
  version?: string | undefined;
  user?: string | undefined;
  session?: string | undefined;
  after?: string | undefined;
  before?: string | undefined;
}

const useInvocations = (app: string, filter: InvocationFilter) =>
  useInfiniteQuery({
    queryKey: ['invocations', app, filter],
    queryFn: ({ pageParam }) =>
      ask(
        api.GET('/apps/{app_name}/invocations', {
          params: {
            path: { app_name: app },
            query: {
              limit: PAGE_SIZE,
              text: filter.text,
              status: filter.status?.split(',') as Invocation['status'][] | undefined,
              errorCode: filter.error,
              agent: filter.agent,
              version: filter.version,
              userId: filter.user,
              sessionId: filter.session,
              createdAfter: toSeconds(filter.after),
              createdBefore: toSeconds(filter.before),
              cursor: pageParam,
            },
          },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

const isRefusal = (error: Error) => error instanceof ApiError && error.status === 403;

/** Invocations, the newest first, as they come; those of one session without what is the same in all rows. */
export function InvocationList({ app, filter }: { app: string; filter: InvocationFilter }) {
  const query = useInvocations(app, filter);
  if (query.error && isRefusal(query.error) && filter.user === undefined)
    return (
      <Refusal todo="Name a user above to see what is theirs.">
        This key may not list the invocations of all users: that needs the scopes <code>read</code> and{' '}
        <code>admin</code>.
      </Refusal>
    );
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const all = pages.flatMap(({ items }) => items);
        const isCut = pages.at(-1)?.isCut === true;
        const isFiltered = Object.entries(filter).some(([name, value]) => name !== 'session' && value !== undefined);
        return (
          <>
            {all.length > 0 && <Rows all={all} isOfSession={filter.session !== undefined} />}
            {all.length === 0 && !isCut && <Empty>{isFiltered ? 'No invocation fits.' : 'No invocation yet.'}</Empty>}
            {isCut && (
              <p className="hint">
                Each page looks at a limited number of invocations. Older ones may fit too: look further, or choose
                dates.
              </p>
            )}
            {query.hasNextPage && (
              <Button isDisabled={query.isFetchingNextPage} onPress={() => void query.fetchNextPage()}>
                {isCut ? 'Look further' : 'More'}
              </Button>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function Rows({ all, isOfSession }: { all: Schemas['ListedInvocation'][]; isOfSession: boolean }) {
  const names = isOfSession ? [] : ['User', 'Session'];
  return (
    <Table
      label="Invocations"
      head={['Question', 'Status', 'Agent', ...names, 'Requested', 'Took', 'Tools', 'Tokens in', 'Tokens out']}
    >
      {all.map((each) => (
        <Row key={`${each.userId} ${each.sessionId} ${each.id}`} invocation={each} isOfSession={isOfSession} />
      ))}
    </Table>
  );
}

function Row({ invocation, isOfSession }: { invocation: Schemas['ListedInvocation']; isOfSession: boolean }) {
  const { id, appName, userId, sessionId, status, error, agent, agentVersion, firstText } = invocation;
  const search = { app: appName, user: userId };
  return (
    <tr>
      <td className="question">
        <Link
          to="/invocations/$appName/$userId/$sessionId/$invocationId"
          params={{ appName, userId, sessionId, invocationId: id }}
          search={search}
        >
          {firstText || id}
        </Link>
        <div className="hint">{id}</div>
      </td>
      <td className="reason">
        <Badge>{status}</Badge>
        {error && error.code !== status && (
          <>
            {' '}
            <Link to="/invocations" search={{ app: appName, error: error.code }}>
              {error.code}
            </Link>
            <div className="hint" title={error.message}>
              {error.message}
            </div>
          </>
        )}
      </td>
      <td>
        {agent ?? '–'}
        {agentVersion && (
          <div className="hint" title={agentVersion}>
            {agentVersion.slice(0, 8)}
            {agentVersion.includes('+') && ' with overrides'}
          </div>
        )}
      </td>
      {!isOfSession && (
        <>
          <td>
            <Link to="/invocations" search={{ app: appName, of: userId }}>
              {userId}
            </Link>
          </td>
          <td>
            <Link to="/sessions/$appName/$userId/$sessionId" params={{ appName, userId, sessionId }} search={search}>
              {sessionId}
            </Link>
          </td>
        </>
      )}
      <td>
        <Time at={invocation.createTime} age />
      </td>
      <td className="number">{toText(secondsOf(invocation), formatSeconds)}</td>
      <td className="number">{formatCount(invocation.toolCalls)}</td>
      <td className="number">{formatCount(invocation.promptTokens)}</td>
      <td className="number">{formatCount(invocation.outputTokens)}</td>
    </tr>
  );
}

/** A number of failed invocations, which leads to them. */
export const Failed = ({
  count,
  app,
  ...of
}: {
  count: number;
  app: string;
  of?: string;
  version?: string;
  after?: string;
}) =>
  count === 0 ? (
    <>0</>
  ) : (
    <Link to="/invocations" search={{ app, status: 'failed', ...of }}>
      {formatCount(count)}
    </Link>
  );

const toText = (value: number | undefined, format: (value: number) => string) =>
  value === undefined ? '–' : format(value);
