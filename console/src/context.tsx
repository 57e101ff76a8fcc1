import { queryOptions, useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { createContext, use } from 'react';
import { api, ask, type Settings } from './api.ts';

/** What all pages know. */
interface Viewer {
  settings: Settings;
  /** The user of the token; without one a user is chosen. */
  me: string | undefined;
  logOut: () => void;
}

export const ViewerContext = createContext<Viewer | undefined>(undefined);

export function useViewer(): Viewer {
  const viewer = use(ViewerContext);
  if (!viewer) throw new Error('no viewer');
  return viewer;
}

export const appsQuery = queryOptions({
  queryKey: ['apps'],
  queryFn: async () => (await ask(api.GET('/list-apps'))) as string[],
});

/** What the credential may do, so that only that is offered. */
export const callerQuery = queryOptions({
  queryKey: ['caller'],
  queryFn: () => ask(api.GET('/caller')),
  staleTime: 60_000,
});

/** The users of an application; a token may not ask, and a key needs the scope `admin`. */
export const usersQuery = (app: string, isAllowed: boolean) =>
  queryOptions({
    queryKey: ['users', app],
    queryFn: async () => {
      const params = { path: { app_name: app }, query: { limit: 1000 } };
      return (await ask(api.GET('/apps/{app_name}/users', { params }))).items.map(({ userId }) => userId);
    },
    enabled: isAllowed && app !== '',
    retry: false,
    // A part of a page that asks again where it is shown would take the page back to "Loading", for ever.
    retryOnMount: false,
  });

/** Requests for the application that a console opens with. */
const MAX_LOOKS = 20;

/** The first application that has a session (of `me`, for the user of a token), else the first. */
const homeAppQuery = (apps: string[] | undefined, me: string | undefined) =>
  queryOptions({
    queryKey: ['home-app', apps, me],
    queryFn: async () => {
      for (const app of apps?.slice(0, MAX_LOOKS) ?? []) if (await hasSessions(app, me)) return app;
      return apps?.[0] ?? '';
    },
    staleTime: Infinity,
  });

async function hasSessions(app: string, me: string | undefined): Promise<boolean> {
  const query = { limit: 1 };
  const path = { app_name: app };
  const asked =
    me === undefined
      ? api.GET('/apps/{app_name}/users', { params: { path, query } })
      : api.GET('/apps/{app_name}/users/{user_id}/sessions', { params: { path: { ...path, user_id: me }, query } });
  const { data } = await asked;
  return (Array.isArray(data) ? data : (data?.items ?? [])).length > 0;
}

interface Scope {
  /** The chosen application, or the first that has a session. */
  app: string;
  apps: string[];
  /** The user of the token, the chosen one, or the first; empty where there is none. */
  user: string;
  users: string[];
  isPending: boolean;
  error: Error | null;
  /** Why the users are not known: a key of some scopes may not list them. */
  usersError: Error | null;
  refetch: () => unknown;
}

/** Whose data a page shows. */
export function useScope(): Scope {
  const { me } = useViewer();
  const chosen = useSearch({ strict: false }) as { app?: string; user?: string };
  const apps = useQuery(appsQuery);
  const home = useQuery({
    ...homeAppQuery(apps.data, me),
    enabled: apps.data !== undefined && chosen.app === undefined,
  });
  const app = chosen.app ?? home.data ?? '';
  const users = useQuery(usersQuery(app, me === undefined));
  const isFirst = chosen.app === undefined && home.isPending;
  const isAsking = apps.isPending || isFirst || (me === undefined && app !== '' && users.isPending && !chosen.user);
  return {
    app,
    apps: apps.data ?? [],
    user: me ?? chosen.user ?? users.data?.[0] ?? '',
    users: users.data ?? [],
    isPending: isAsking,
    error: apps.error,
    usersError: users.error,
    refetch: () => Promise.all([apps.refetch(), users.refetch()]),
  };
}
