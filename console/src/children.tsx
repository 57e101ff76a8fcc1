import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, ask, type Schemas, type SessionName } from './api.ts';
import { formatCost, formatCount } from './format.ts';
import { type Invocation, isOpen } from './invocation-list.tsx';
import { Badge, InvocationLink } from './ui.tsx';

const POLL_MS = 2_000;

/** The child sessions of a session. @param goes - true: it may get more of them, so they are read again and again */
const useChildren = (name: SessionName, goes: boolean) =>
  useQuery({
    queryKey: ['children', name],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions', {
          params: {
            path: { app_name: name.app, user_id: name.user },
            query: { parentSessionId: name.session, withDetails: true },
          },
        }),
      ),
    refetchInterval: goes && POLL_MS,
    retry: false,
  });

/** The way from the call of an agent to the session in which that works; nothing below other calls. */
export function ChildLink({ name, callId }: { name: SessionName; callId: string | null | undefined }) {
  const { app, user } = name;
  const { data } = useChildren(name, false);
  const child = data?.find(({ parent }) => parent !== undefined && parent.callId === callId);
  if (!child) return null;
  return (
    <p>
      <Link to="/sessions/$appName/$userId/$sessionId" params={{ appName: app, userId: user, sessionId: child.id }}>
        What this agent did
      </Link>
    </p>
  );
}

interface CalledProps {
  name: SessionName;
  invocation: Invocation;
}

/** The agents that an invocation called which work in sessions of their own, and those that they called, as a tree. */
export function CalledAgents({ name, invocation }: CalledProps) {
  const { data = [] } = useChildren(name, isOpen(invocation));
  const called = data.filter(({ parent }) => parent?.invocationId === invocation.id);
  if (called.length === 0) return null;
  return (
    <section aria-label="Agents that it called">
      <h2>Agents that it called</h2>
      <Level name={name} sessions={called} root={called[0]?.parent?.rootSessionId ?? name.session} />
    </section>
  );
}

interface LevelProps {
  name: SessionName;
  sessions: Schemas['Session'][];
  /** The session of the user, which the tasks of the whole tree are listed by. */
  root: string;
}

const Level = ({ name, sessions, root }: LevelProps) => (
  <ul>
    {sessions.map(({ id }) => (
      <Called key={id} name={{ ...name, session: id }} root={root} />
    ))}
  </ul>
);

/** One of them: whether it goes on, what it has used, and what it asks. Its session has one invocation. */
function Called({ name, root }: { name: SessionName; root: string }) {
  const { app, user, session } = name;
  const { data } = useQuery({
    queryKey: ['called', name],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/invocations', {
          params: { path: { app_name: app }, query: { userId: user, sessionId: session, limit: 1 } },
        }),
      ),
    refetchInterval: ({ state }) => {
      const [own] = state.data?.items ?? [];
      return own && !isOpen(own) ? false : POLL_MS;
    },
    retry: false,
  });
  const own = data?.items[0];
  const { data: below = [] } = useChildren(name, own !== undefined && isOpen(own));
  if (!own) return null;
  const { agent, firstText, status, llmCalls, promptTokens, outputTokens, cost, error } = own;
  return (
    <li>
      <Badge>{status}</Badge>{' '}
      <InvocationLink name={name} id={own.id}>
        <bdi>{agent ?? firstText ?? own.id}</bdi>
      </InvocationLink>
      : {formatCount(llmCalls)} model {llmCalls === 1 ? 'call' : 'calls'}, {formatCount(promptTokens)} in,{' '}
      {formatCount(outputTokens)} out{cost !== undefined && `, ${formatCost(cost)}`}
      {error && (
        <>
          {' '}
          <bdi className="bad">{error.message}</bdi>
        </>
      )}
      {status === 'paused' && <Asks name={name} root={root} />}
      {below.length > 0 && <Level name={name} sessions={below} root={root} />}
    </li>
  );
}

/** The ways to its open tasks. */
function Asks({ name: { app, user, session }, root }: { name: SessionName; root: string }) {
  const { data } = useQuery({
    queryKey: ['tasks-below', app, user, root],
    queryFn: () =>
      ask(api.GET('/tasks', { params: { query: { appName: app, ownerId: user, sessionId: root, limit: 100 } } })),
    refetchInterval: POLL_MS,
    retry: false,
  });
  return (data?.items ?? [])
    .filter((task) => task.sessionId === session)
    .map(({ id, kind }) => (
      <span key={id}>
        {' '}
        <Link to="/tasks/$taskId" params={{ taskId: id }}>
          Open task: {kind}
        </Link>
      </span>
    ));
}

/** Whose result a message is that an agent in the background has sent, with the way to its session. */
export function ResultOf({ name, agent, sessionId }: { name: SessionName; agent: string; sessionId: string }) {
  return (
    <>
      Result of{' '}
      <Link to="/sessions/$appName/$userId/$sessionId" params={{ appName: name.app, userId: name.user, sessionId }}>
        {agent}
      </Link>
    </>
  );
}
