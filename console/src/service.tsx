import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import type { FormEvent } from 'react';
import { Button } from 'react-aria-components';
import { api, ask } from './api.ts';
import { useScope, useViewer } from './context.tsx';
import { formatCount, formatSeconds, toSeconds } from './format.ts';
import { Badge, Empty, Facts, fieldsOf, Folded, Loaded, Table, Time } from './ui.tsx';

const route = getRouteApi('/operations');

export const useServiceState = () =>
  useQuery({
    queryKey: ['service'],
    queryFn: () => ask(api.GET('/service')),
    refetchInterval: 5_000,
    retry: false,
  });

/** The replica that answers, the others, what waits, and the sweep. */
export function Service() {
  const { settings } = useViewer();
  const { apps } = useScope();
  const ready = useQuery({
    queryKey: ['ready'],
    queryFn: () => ask(api.GET('/ready')),
    refetchInterval: 5_000,
    retry: false,
  });
  const version = useQuery({ queryKey: ['version'], queryFn: () => ask(api.GET('/version')) });
  const state = useServiceState();
  return (
    <>
      <Facts
        facts={[
          [
            'This replica',
            <Badge key="ready" {...(ready.error && { tone: 'bad' })}>
              {ready.error ? ready.error.message : (ready.data?.status ?? '…')}
            </Badge>,
          ],
          ['Version', version.data?.version ?? settings.version],
          ['Node', version.data?.language_version ?? '…'],
          ['Mode', settings.mode],
        ]}
      />
      <Loaded query={state}>
        {({ replicas, queues, stranded, sweeps }) => (
          <div className="halves">
            <section aria-label="Queues">
              <h2>Queues</h2>
              <Table label="Queues" head={['Queue', 'Waiting', 'Running', 'Oldest wait']}>
                {queues.map(({ name, waiting, more, running, oldestSeconds }) => (
                  <tr key={name}>
                    <td>{name}</td>
                    <td className="number">
                      {formatCount(waiting)}
                      {more && '+'}
                    </td>
                    <td className="number">{formatCount(running)}</td>
                    <td className="number">{oldestSeconds === null ? '–' : formatSeconds(oldestSeconds)}</td>
                  </tr>
                ))}
              </Table>
              {stranded > 0 && (
                <p className="bad">
                  {formatCount(stranded)} paused {stranded === 1 ? 'invocation' : 'invocations'} that nothing will
                  resume, as the tasks are gone.{' '}
                  <Link to="/invocations" search={{ waits: 'stranded', every: apps.length > 1 ? 'yes' : undefined }}>
                    Which they are
                  </Link>
                </p>
              )}
            </section>
            <section aria-label="Replicas">
              <h2>Replicas</h2>
              {replicas.length === 0 ? (
                <Empty>None can be seen: they do not listen at the database.</Empty>
              ) : (
                <Table label="Replicas" head={['Host', 'Version', 'Listens since']}>
                  {replicas.map(({ host, version: release, startTime }) => (
                    <tr key={`${host} ${startTime}`}>
                      <td>{host}</td>
                      <td>
                        <Badge tone={release === settings.version ? '' : 'busy'}>{release}</Badge>
                      </td>
                      <td>
                        <Time at={startTime} age />
                      </td>
                    </tr>
                  ))}
                </Table>
              )}
              <h2>Sweep of this replica</h2>
              {sweeps.length === 0 ? (
                <Empty>It has not swept yet.</Empty>
              ) : (
                <details>
                  <summary>
                    Last job {formatSeconds(Math.min(...sweeps.map(({ secondsAgo }) => secondsAgo)))} ago,{' '}
                    {formatCount(sweeps.length)} jobs
                  </summary>
                  <Table label="Sweep" head={['Job', 'Last done']}>
                    {sweeps.map(({ job, secondsAgo }) => (
                      <tr key={job}>
                        <td>{job}</td>
                        <td className="number">{formatSeconds(secondsAgo)} ago</td>
                      </tr>
                    ))}
                  </Table>
                </details>
              )}
            </section>
          </div>
        )}
      </Loaded>
    </>
  );
}

const KINDS = ['user', 'key', 'anonymous', 'unknown'] as const;
const FIELDS = [
  ['caller', 'Caller'],
  ['operation', 'Operation'],
  ['about', 'About user'],
] as const;

/** Who was allowed or refused what. */
export function AuditList() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { decision, caller, operation, about, from, to } = search;
  const callerKind = KINDS.find((kind) => kind === search.callerKind);
  const query = useInfiniteQuery({
    queryKey: ['audit', decision, callerKind, caller, operation, about, from, to],
    queryFn: ({ pageParam: cursor }) => {
      const who = { decision, callerKind, caller, operation, userId: about };
      const times = { from: toSeconds(from), to: toSeconds(to) };
      return ask(api.GET('/audit', { params: { query: { ...who, ...times, limit: 50, cursor } } }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    retry: false,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = fieldsOf(event.currentTarget);
    void navigate({ search: (before) => ({ ...before, ...values }) });
  };
  return (
    <>
      <form className="filters" onSubmit={submit} key={JSON.stringify(search)} aria-label="Search the audit">
        <label>
          Decision
          <select name="decision" defaultValue={decision ?? ''}>
            <option value="">any</option>
            <option>allowed</option>
            <option>refused</option>
          </select>
        </label>
        <label>
          Caller is
          <select name="callerKind" defaultValue={callerKind ?? ''}>
            <option value="">any</option>
            {KINDS.map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
        {FIELDS.map(([name, label]) => (
          <label key={name}>
            {label}
            <input name={name} maxLength={256} defaultValue={search[name]} />
          </label>
        ))}
        <label>
          From
          <input name="from" type="date" defaultValue={from} />
        </label>
        <label>
          Until before
          <input name="to" type="date" defaultValue={to} />
        </label>
        <Button type="submit">Search</Button>
      </form>
      <Loaded query={query}>
        {({ pages }) => {
          const entries = pages.flatMap(({ items }) => items);
          if (entries.length === 0 && !query.hasNextPage) return <Empty>No entry fits. AUDIT says what is kept.</Empty>;
          return (
            <>
              <Table label="Audit" head={['Operation', 'Decision', 'When', 'Caller', 'Address', 'About', 'Why']}>
                {entries.map((entry) => (
                  <tr key={`${entry.time} ${entry.requestId} ${entry.decision}`}>
                    <td>
                      <Folded label={entry.operation ?? 'unknown'} value={entry} />
                    </td>
                    <td>
                      <Badge tone={entry.decision === 'allowed' ? 'good' : 'bad'}>{entry.decision}</Badge>
                    </td>
                    <td>
                      <Time at={entry.time} exact />
                    </td>
                    <td>
                      {entry.callerKind} {entry.caller}
                    </td>
                    <td>{entry.address ?? '–'}</td>
                    <td>
                      <About resource={entry.resource} />
                    </td>
                    <td>
                      {entry.reason ?? '–'}
                      {entry.leftOut > 0 && <div className="hint">{formatCount(entry.leftOut)} more before it</div>}
                    </td>
                  </tr>
                ))}
              </Table>
              {query.hasNextPage && <Button onPress={() => void query.fetchNextPage()}>More</Button>}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

/** Whose object a request was about, and the other names in its path. */
function About({ resource: { appName, userId, ...names } }: { resource: Record<string, string> }) {
  const whose = [appName, userId].filter(Boolean).join(' / ');
  const others = Object.entries(names).map(([name, value]) => `${name} ${value}`);
  if (whose === '' && others.length === 0) return <>–</>;
  return (
    <>
      {whose}
      {others.map((each) => (
        <div key={each} className="hint">
          {each}
        </div>
      ))}
    </>
  );
}

/** The keys, which have no secret here. */
export function Keys() {
  const query = useServiceState();
  return (
    <Loaded query={query}>
      {({ keys }) =>
        keys.length === 0 ? (
          <Empty>There are none in this mode.</Empty>
        ) : (
          <Table label="Keys" head={['Key', 'Scopes', 'Users', 'Applications', 'Until']}>
            {keys.map(({ id, scopes, users, apps, expires }, index) => (
              <tr key={id ?? index}>
                <td>{id ?? 'of RUNTIME_API_KEYS'}</td>
                <td>
                  {scopes.map((scope) => (
                    <Badge key={scope} tone={scope === 'admin' ? 'busy' : ''}>
                      {scope}
                    </Badge>
                  ))}
                </td>
                <td>{users?.join(', ') ?? 'all'}</td>
                <td>{apps?.join(', ') ?? 'all'}</td>
                <td>{expires ? <Time at={expires} /> : 'no end'}</td>
              </tr>
            ))}
          </Table>
        )
      }
    </Loaded>
  );
}
