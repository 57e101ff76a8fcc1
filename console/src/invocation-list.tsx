import { keepPreviousData, queryOptions, useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Button } from 'react-aria-components';
import { api, ApiError, ask, type Event, type Schemas } from './api.ts';
import { COST_UNIT, formatCost, formatCount, formatSeconds, toSeconds } from './format.ts';
import { Badge, Empty, Loaded, Refusal, Table, Time } from './ui.tsx';

export type Invocation = Schemas['Invocation'];

export const isOpen = ({ status }: Invocation) => /^(queued|running|paused)$/.test(status);

/**
 * Work: the time for which a process ran it. Waiting: the rest since it was requested, for its session, a person or a time.
 * What runs now is not known to the service until it ends or pauses.
 */
export function timesOf({ status, createTime, endTime, workSeconds }: Invocation) {
  const now = Date.now() / 1000;
  if (status === 'running') return { work: now - createTime, waiting: undefined };
  const isOver = status !== 'queued' && status !== 'paused';
  const whole = (isOver ? (endTime ?? now) : now) - createTime;
  return { work: workSeconds, waiting: Math.max(0, whole - (workSeconds ?? 0)) };
}

/** Waits below this are those of every invocation, and not worth a word in a list. */
const MIN_WAIT_SECONDS = 1;

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
  /** Anything: only those with failed tool calls. */
  tools?: string | undefined;
  /** Anything: only paused ones that nothing will resume. */
  waits?: string | undefined;
}

/** @param app - `undefined`: all applications */
const useInvocations = (app: string | undefined, filter: InvocationFilter) =>
  useInfiniteQuery({
    queryKey: ['invocations', app, filter],
    queryFn: ({ pageParam }) => {
      const query = {
        limit: PAGE_SIZE,
        text: filter.text,
        status: filter.status?.split(',') as Invocation['status'][] | undefined,
        errorCode: filter.error,
        failedToolCalls: filter.tools === undefined ? undefined : true,
        stranded: filter.waits === undefined ? undefined : true,
        agent: filter.agent,
        version: filter.version,
        userId: filter.user,
        sessionId: filter.session,
        createdAfter: toSeconds(filter.after),
        createdBefore: toSeconds(filter.before),
        cursor: pageParam,
      };
      return ask(
        app === undefined
          ? api.GET('/invocations', { params: { query } })
          : api.GET('/apps/{app_name}/invocations', { params: { path: { app_name: app }, query } }),
      );
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

const isRefusal = (error: Error) => error instanceof ApiError && error.status === 403;

/** Invocations, the newest first, as they come; those of one session without what is the same in all rows. */
export function InvocationList({ app, filter }: { app: string | undefined; filter: InvocationFilter }) {
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
            {all.length > 0 && (
              <Rows all={all} isOfSession={filter.session !== undefined} isOfAllApps={app === undefined} />
            )}
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

interface RowProps {
  /** Without what is the same in all rows. */
  isOfSession: boolean;
  isOfAllApps: boolean;
}

function Rows({ all, isOfSession, isOfAllApps }: RowProps & { all: Schemas['ListedInvocation'][] }) {
  const names = [...(isOfAllApps ? ['App'] : []), ...(isOfSession ? [] : ['User', 'Session'])];
  const hasCosts = all.some(({ cost }) => cost !== undefined);
  return (
    <>
      <Table
        label="Invocations"
        head={[
          'Question',
          'Status',
          'Agent',
          ...names,
          'Requested',
          'Worked',
          'Tools',
          'Tokens in',
          'Tokens out',
          ...(hasCosts ? ['Cost'] : []),
        ]}
      >
        {all.map((each) => (
          <Row
            key={`${each.appName} ${each.userId} ${each.sessionId} ${each.id}`}
            invocation={each}
            isOfSession={isOfSession}
            isOfAllApps={isOfAllApps}
            hasCost={hasCosts}
          />
        ))}
      </Table>
      <p className="hint">
        Worked: the time for which a process ran it, without what it waited for its session, a person or a time.
        {hasCosts && ` Cost: ${COST_UNIT}; “–” where a model has no price.`}
      </p>
    </>
  );
}

function Row(props: RowProps & { invocation: Schemas['ListedInvocation']; hasCost: boolean }) {
  const { invocation, isOfSession, isOfAllApps, hasCost } = props;
  const { id, appName, userId, sessionId, status, error, agent, agentVersion, firstText } = invocation;
  const { failedToolCalls = 0, toolCalls, cost, steeredInto } = invocation;
  const { work, waiting = 0 } = timesOf(invocation);
  const search = { app: appName, user: userId };
  const params = { appName, userId, sessionId, invocationId: id };
  return (
    <tr>
      <td className="question">
        <Link to="/invocations/$appName/$userId/$sessionId/$invocationId" params={params} search={search}>
          {firstText || id}
        </Link>
        <div className="hint">{id}</div>
      </td>
      <td className="reason">
        <Badge>{status}</Badge>
        {steeredInto !== undefined && (
          <div className="hint">
            steered{' '}
            <Link
              to="/invocations/$appName/$userId/$sessionId/$invocationId"
              params={{ ...params, invocationId: steeredInto }}
              search={search}
            >
              {steeredInto}
            </Link>
          </div>
        )}
        {failedToolCalls > 0 && (
          <Badge tone="busy">
            {failedToolCalls} tool {failedToolCalls === 1 ? 'call' : 'calls'} failed
          </Badge>
        )}
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
      {isOfAllApps && (
        <td>
          <Link to="/invocations" search={{ app: appName }}>
            {appName}
          </Link>
        </td>
      )}
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
      <td className="number">
        {toText(work, formatSeconds)}
        {waiting >= MIN_WAIT_SECONDS && <div className="hint">waited {formatSeconds(waiting)}</div>}
      </td>
      <td className="number">{formatCount(toolCalls)}</td>
      <td className="number">{formatCount(invocation.promptTokens)}</td>
      <td className="number">{formatCount(invocation.outputTokens)}</td>
      {hasCost && <td className="number">{toText(cost, formatCost)}</td>}
    </tr>
  );
}

/** Statuses of what failed. What was cancelled did not fail: somebody stopped it. */
export const FAILED = 'failed,interrupted';

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
    <Link to="/invocations" search={{ app, status: FAILED, ...of }}>
      {formatCount(count)}
    </Link>
  );

const toText = (value: number | undefined, format: (value: number) => string) =>
  value === undefined ? '–' : format(value);
