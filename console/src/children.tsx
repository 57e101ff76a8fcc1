import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, ask, type SessionName } from './api.ts';

/** The way from the call of an agent to the session in which that works; nothing below other calls. */
export function ChildLink({ name, callId }: { name: SessionName; callId: string | null | undefined }) {
  const { app, user, session } = name;
  const { data } = useQuery({
    queryKey: ['children', name],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions', {
          params: {
            path: { app_name: app, user_id: user },
            query: { parentSessionId: session, withDetails: true },
          },
        }),
      ),
    retry: false,
  });
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
