import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useDeferredValue, useEffect, useMemo, useState } from 'react';
import { Button, Tab, TabList, TabPanel, Tabs } from 'react-aria-components';
import { api, ask, inPath, type Schemas, type SessionName } from './api.ts';
import { Artifacts } from './artifacts.tsx';
import { Compare } from './compare.tsx';
import { Conversation } from './conversation.tsx';
import { type Item, useEvents } from './events.ts';
import { formatCount } from './format.ts';
import { InvocationList } from './invocation-list.tsx';
import { Ask, Badge, Empty, Facts, Folded, Loaded, Problem, Time } from './ui.tsx';

const route = getRouteApi('/sessions/$appName/$userId/$sessionId');
const TABS = [
  ['conversation', 'Conversation'],
  ['state', 'State'],
  ['artifacts', 'Artifacts'],
  ['invocations', 'Invocations'],
  ['compare', 'Compare'],
] as const;

/** One session: what was said, as of any event. */
export function SessionPage() {
  const { appName: app, userId: user, sessionId: session } = route.useParams();
  const name = useMemo(() => ({ app, user, session }), [app, user, session]);
  const { tab = 'conversation', at, event } = route.useSearch();
  const navigate = route.useNavigate();
  const { items, open, error } = useEvents(name);
  const last = items.at(-1)?.sequence ?? 0;
  const seen = useDeferredValue(at);
  const shown = useMemo(
    () => (seen === undefined ? items : items.filter(({ sequence }) => sequence <= seen)),
    [items, seen],
  );
  const query = useSession(name, seen, last);
  const back = (
    <p>
      <Link to="/sessions" search={{ app, user }}>
        Sessions of {user}
      </Link>
    </p>
  );
  if (query.error && query.data === undefined)
    return (
      <>
        {back}
        <h1>{session}</h1>
        <Problem error={query.error} retry={() => void query.refetch()} />
      </>
    );
  const setAt = (next: number) =>
    void navigate({ search: (before) => ({ ...before, at: next >= last ? undefined : next }), replace: true });
  return (
    <>
      {back}
      <h1>{query.data?.firstText || session}</h1>
      <Loaded query={query}>{(data) => <Head name={name} session={data} at={at} />}</Loaded>
      {error && <Problem error={error} />}
      <label className="as-of">
        As of event <strong>{at ?? last}</strong> of {formatCount(last)}
        <input
          type="range"
          min={0}
          max={last}
          value={at ?? last}
          onChange={(change) => setAt(change.target.valueAsNumber)}
        />
        {at !== undefined && <Button onPress={() => setAt(last)}>Now</Button>}
      </label>
      <Tabs
        selectedKey={tab}
        onSelectionChange={(key) => void navigate({ search: (before) => ({ ...before, tab: String(key) }) })}
      >
        <TabList aria-label="Parts of the session">
          {TABS.map(([id, label]) => (
            <Tab key={id} id={id}>
              {label}
            </Tab>
          ))}
        </TabList>
        <TabPanel id="conversation">
          <Conversation items={shown} open={open} name={name} goTo={event} isLive={at === undefined} />
        </TabPanel>
        <TabPanel id="state">
          <Loaded query={query}>{({ state }) => <State state={state} items={shown} />}</Loaded>
        </TabPanel>
        <TabPanel id="artifacts">
          <Artifacts name={name} />
        </TabPanel>
        <TabPanel id="invocations">
          <InvocationList app={app} filter={{ user, session }} />
        </TabPanel>
        <TabPanel id="compare">
          <Compare name={name} at={at} />
        </TabPanel>
      </Tabs>
    </>
  );
}

/** What a session is beside its events: again with each event that comes. */
function useSession(name: SessionName, at: number | undefined, last: number) {
  const queries = useQueryClient();
  useEffect(() => {
    const refresh = () => void queries.invalidateQueries({ queryKey: ['session', name, null] });
    // Not for each of many.
    const timer = setTimeout(refresh, 300);
    return () => clearTimeout(timer);
  }, [queries, name, last]);
  return useQuery({
    queryKey: ['session', name, at ?? null],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}', {
          params: { path: inPath(name), query: { numRecentEvents: 0, withDetails: true, atSequence: at } },
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

function Head({ name, session, at }: { name: SessionName; session: Schemas['Session']; at: number | undefined }) {
  const { app, user } = name;
  const { labels = {}, forkedFrom, parent } = session;
  return (
    <div className="head">
      <Facts
        facts={[
          ['Session', <code key="id">{session.id}</code>],
          ['User', user],
          ['Application', app],
          ['Created', <Time key="created" at={session.createTime} />],
          ['Updated', <Time key="updated" at={session.lastUpdateTime} age />],
          [
            'Labels',
            Object.keys(labels).length === 0
              ? '–'
              : Object.entries(labels).map(([key, value]) => (
                  <Badge key={key}>
                    {key}={value}
                  </Badge>
                )),
          ],
          ...(forkedFrom
            ? ([
                [
                  'Fork of',
                  <Link
                    key="fork"
                    to="/sessions/$appName/$userId/$sessionId"
                    params={{ appName: app, userId: user, sessionId: forkedFrom.sessionId }}
                    search={{ at: forkedFrom.atSequence }}
                  >
                    {forkedFrom.sessionId} at {forkedFrom.atSequence}
                  </Link>,
                ],
              ] satisfies [string, React.ReactNode][])
            : []),
          ...(parent
            ? ([
                [
                  'Called by',
                  <Link
                    key="parent"
                    to="/invocations/$appName/$userId/$sessionId/$invocationId"
                    params={{
                      appName: app,
                      userId: user,
                      sessionId: parent.sessionId,
                      invocationId: parent.invocationId,
                    }}
                    search={{ app, user }}
                  >
                    {parent.invocationId}
                  </Link>,
                ],
              ] satisfies [string, React.ReactNode][])
            : []),
        ]}
      />
      <div className="actions">
        {/* In the session of an agent that another one calls nobody else writes, and it goes with the other. */}
        {parent === undefined && (
          <Link
            className="button"
            to="/talk/$appName/$userId/$sessionId"
            params={{ appName: app, userId: user, sessionId: session.id }}
            search={{ app, user }}
          >
            Talk
          </Link>
        )}
        <Fork name={name} at={at} />
        {parent === undefined && <Erase name={name} />}
      </div>
    </div>
  );
}

function Fork({ name, at }: { name: SessionName; at: number | undefined }) {
  const navigate = route.useNavigate();
  const fork = async () => {
    const made = await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/fork', {
        params: { path: inPath(name) },
        body: { atSequence: at ?? null },
      }),
    );
    await navigate({ params: { appName: name.app, userId: name.user, sessionId: made.id }, search: {} });
  };
  return (
    <Ask label="Fork" title="Fork this session?" action="Fork" run={fork}>
      <p>
        A new session of {name.user} begins with {at === undefined ? 'all events' : `the events up to ${at}`}.
      </p>
    </Ask>
  );
}

function Erase({ name }: { name: SessionName }) {
  const navigate = route.useNavigate();
  const queries = useQueryClient();
  const [forgets, setForgets] = useState(false);
  const erase = async () => {
    await ask(
      api.DELETE('/apps/{app_name}/users/{user_id}/sessions/{session_id}', {
        params: { path: inPath(name), query: { forgetMemories: forgets } },
      }),
    );
    await navigate({ to: '/sessions', search: { app: name.app, user: name.user } });
    queries.removeQueries({ queryKey: ['session', name] });
    await queries.invalidateQueries({ queryKey: ['sessions'] });
  };
  return (
    <Ask label="Erase" title="Erase this session?" action="Erase" run={erase} isDangerous>
      <p>Its events and traces are deleted and cannot be brought back. Artifacts and shared state stay.</p>
      <label className="check">
        <input type="checkbox" checked={forgets} onChange={(event) => setForgets(event.target.checked)} />
        Also forget the memories that were made of it
      </label>
    </Ask>
  );
}

/** The state, and the events that changed it. */
function State({ state, items }: { state: Record<string, unknown>; items: Item[] }) {
  const changes = useMemo(
    () => items.filter(({ event }) => Object.keys(event.actions?.stateDelta ?? {}).length > 0).toReversed(),
    [items],
  );
  const keys = Object.keys(state).toSorted();
  return (
    <div className="split">
      <section aria-label="State">
        <h2>State</h2>
        {keys.length === 0 && <Empty>Empty.</Empty>}
        {keys.map((key) => (
          <Folded key={key} label={<code>{key}</code>} value={state[key]} open={keys.length < 8} />
        ))}
      </section>
      <section aria-label="History">
        <h2>History</h2>
        {changes.length === 0 && <Empty>No event has changed it.</Empty>}
        {changes.slice(0, 200).map(({ sequence, event }) => (
          <Folded
            key={sequence}
            label={
              <>
                #{sequence} <Time at={event.timestamp ?? undefined} exact />{' '}
                {Object.keys(event.actions?.stateDelta ?? {}).join(', ')}
              </>
            }
            value={event.actions?.stateDelta}
          />
        ))}
      </section>
    </div>
  );
}
