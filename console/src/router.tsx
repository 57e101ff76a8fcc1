import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Link,
  redirect,
  retainSearchParams,
} from '@tanstack/react-router';
import { HOME_PATH } from './place.ts';
import { SessionsPage } from './sessions.tsx';
import { SessionPage } from './session.tsx';
import { Shell } from './shell.tsx';
import { Empty, Problem } from './ui.tsx';

/** Every view has an address: what is chosen is in its path and its search. */

type Search = Record<string, unknown>;
/** The search is JSON where it can be: a user named 7 comes as a number. */
const text = (value: unknown) =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value) || undefined
    : undefined;
const texts =
  <const Name extends string>(...names: Name[]) =>
  (search: Search) =>
    Object.fromEntries(names.map((name) => [name, text(search[name])])) as Partial<Record<Name, string>>;
const counts =
  <const Name extends string>(...names: Name[]) =>
  (search: Search) =>
    Object.fromEntries(
      names.map((name) => [name, /^\d+$/.test(text(search[name]) ?? '') ? Number(search[name]) : undefined]),
    ) as Partial<Record<Name, number>>;

const root = createRootRoute({
  validateSearch: texts('app', 'user'),
  search: { middlewares: [retainSearchParams(['app', 'user'])] },
  component: Shell,
  notFoundComponent: () => (
    <Empty>
      There is no such page. <Link to="/sessions">Sessions</Link>
    </Empty>
  ),
  errorComponent: ({ error }) => <Problem error={error as Error} />,
});

const at = () => root;
const index = createRoute({
  getParentRoute: at,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/sessions', search: true });
  },
});

const sessions = createRoute({
  getParentRoute: at,
  path: '/sessions',
  validateSearch: texts('text', 'label', 'after', 'before'),
  component: SessionsPage,
});

const session = createRoute({
  getParentRoute: at,
  path: '/sessions/$appName/$userId/$sessionId',
  validateSearch: (search: Search) => ({
    ...texts('tab', 'artifact', 'other')(search),
    ...counts('at', 'event', 'version')(search),
  }),
  component: SessionPage,
});

const newTalk = createRoute({
  getParentRoute: at,
  path: '/talk',
  component: lazyRouteComponent(() => import('./chat.tsx'), 'NewTalkPage'),
});

const talk = createRoute({
  getParentRoute: at,
  path: '/talk/$appName/$userId/$sessionId',
  component: lazyRouteComponent(() => import('./chat.tsx'), 'TalkPage'),
});

const invocation = createRoute({
  getParentRoute: at,
  path: '/invocations/$appName/$userId/$sessionId/$invocationId',
  component: lazyRouteComponent(() => import('./invocations.tsx'), 'InvocationPage'),
});

const invocations = createRoute({
  getParentRoute: at,
  path: '/invocations',
  validateSearch: texts(
    ...([
      'text',
      'status',
      'error',
      'tools',
      'waits',
      'agent',
      'version',
      'of',
      'session',
      'after',
      'before',
      'every',
    ] as const),
  ),
  component: lazyRouteComponent(() => import('./all-invocations.tsx'), 'InvocationsPage'),
});

const tasks = createRoute({
  getParentRoute: at,
  path: '/tasks',
  validateSearch: texts('state', 'kind', 'in', 'of', 'assignee', 'text'),
  component: lazyRouteComponent(() => import('./tasks.tsx'), 'TasksPage'),
});

const task = createRoute({
  getParentRoute: at,
  path: '/tasks/$taskId',
  component: lazyRouteComponent(() => import('./tasks.tsx'), 'TaskPage'),
});

const usage = createRoute({
  getParentRoute: at,
  path: '/usage',
  validateSearch: (search: Search) => ({ ...texts('by', 'of')(search), ...counts('days')(search) }),
  component: lazyRouteComponent(() => import('./usage.tsx'), 'UsagePage'),
});

const quality = createRoute({
  getParentRoute: at,
  path: '/quality',
  validateSearch: texts('set'),
  component: lazyRouteComponent(() => import('./quality.tsx'), 'QualityPage'),
});

const run = createRoute({
  getParentRoute: at,
  path: '/quality/$appName/$runId',
  validateSearch: texts('baseline', 'case'),
  component: lazyRouteComponent(() => import('./quality.tsx'), 'RunPage'),
});

const operations = createRoute({
  getParentRoute: at,
  path: '/operations',
  validateSearch: texts(
    ...(['job', 'hook', 'failed', 'decision', 'callerKind', 'caller', 'operation', 'about', 'from', 'to'] as const),
  ),
  component: lazyRouteComponent(() => import('./operations.tsx'), 'OperationsPage'),
});

const lists = [index, newTalk, sessions, invocations, tasks, usage, quality, operations] as const;
const things = [session, talk, invocation, task, run] as const;

export const router = createRouter({
  routeTree: root.addChildren([...lists, ...things]),
  basepath: HOME_PATH,
  defaultPreload: false,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
