import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, askWhole, inPath, type Schemas, type SessionName } from './api.ts';
import { formatCount, toSeconds } from './format.ts';
import { Badge, Empty, fieldsOf, ForUser, Loaded, Table, Time } from './ui.tsx';

const route = getRouteApi('/sessions');
const PAGE_SIZE = 50;

/** The sessions of a user, the newest first. */
export function SessionsPage() {
  return (
    <>
      <h1>Sessions</h1>
      <Filters />
      <ForUser>{(app, user) => <List app={app} user={user} />}</ForUser>
    </>
  );
}

function Filters() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = fieldsOf(event.currentTarget);
    void navigate({ search: (before) => ({ ...before, ...values }) });
  };
  return (
    <form className="filters" onSubmit={submit} key={JSON.stringify(search)} aria-label="Find sessions">
      <label>
        Search
        <input name="text" type="search" placeholder="first words" maxLength={256} defaultValue={search.text} />
      </label>
      <label>
        Label
        <input name="label" placeholder="name or name=value" defaultValue={search.label} />
      </label>
      <label>
        Updated after
        <input name="after" type="date" defaultValue={search.after} />
      </label>
      <label>
        Updated before
        <input name="before" type="date" defaultValue={search.before} />
      </label>
      <Button type="submit">Search</Button>
    </form>
  );
}

function List({ app, user }: { app: string; user: string }) {
  const { text, label, after, before } = route.useSearch();
  const query = useInfiniteQuery({
    queryKey: ['sessions', app, user, text, label, after, before],
    queryFn: ({ pageParam }) =>
      askWhole(
        api.GET('/apps/{app_name}/users/{user_id}/sessions', {
          params: {
            path: { app_name: app, user_id: user },
            query: {
              limit: PAGE_SIZE,
              withDetails: true,
              text,
              label: label ? [label] : undefined,
              updatedAfter: toSeconds(after),
              updatedBefore: toSeconds(before),
              cursor: pageParam,
            },
          },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ cursor }) => cursor,
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const sessions = pages.flatMap(({ data }) => data);
        if (sessions.length === 0 && !query.hasNextPage) return <Empty>No session of {user} fits.</Empty>;
        return (
          <>
            <Table label="Sessions" head={['Session', 'Labels', 'Events', 'Created', 'Updated', 'Last invocation']}>
              {sessions.map((session) => (
                <Row key={session.id} session={session} />
              ))}
            </Table>
            {query.hasNextPage && (
              <Button isDisabled={query.isFetchingNextPage} onPress={() => void query.fetchNextPage()}>
                More
              </Button>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function Row({ session }: { session: Schemas['Session'] }) {
  const { id, appName, userId, firstText, labels = {}, lastSequence, createTime, lastUpdateTime } = session;
  return (
    <tr>
      <td>
        <Link
          to="/sessions/$appName/$userId/$sessionId"
          params={{ appName, userId, sessionId: id }}
          search={{ app: appName, user: userId }}
        >
          {firstText || id}
        </Link>
        <div className="hint">{id}</div>
      </td>
      <td>
        {Object.entries(labels).map(([name, value]) => (
          <Link key={name} to="/sessions" search={{ label: `${name}=${value}` }} className="badge">
            {name}={value}
          </Link>
        ))}
      </td>
      <td className="number">{lastSequence === undefined ? '–' : formatCount(lastSequence)}</td>
      <td>
        <Time at={createTime} age />
      </td>
      <td>
        <Time at={lastUpdateTime} age />
      </td>
      <td>
        <LastInvocation name={{ app: appName, user: userId, session: id }} version={lastUpdateTime} />
      </td>
    </tr>
  );
}

/** Asked for what is seen only: it is one request for each session. */
function LastInvocation({ name, version }: { name: SessionName; version: number }) {
  const place = useRef<HTMLSpanElement>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setSeen(true));
    if (place.current) observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const { data } = useQuery({
    queryKey: ['last-invocation', name, version],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations', {
          params: { path: inPath(name), query: { limit: 1 } },
        }),
      ),
    enabled: isSeen,
  });
  const status = data?.[0]?.status;
  return <span ref={place}>{status ? <Badge>{status}</Badge> : '–'}</span>;
}
