import { Link, Outlet, useMatches, useNavigate, useSearch } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import type { Settings } from './api.ts';
import { useScope, useViewer } from './context.tsx';
import { ZONE } from './format.ts';
import { SERVICE } from './place.ts';
import { applyTheme, currentTheme, type Theme, THEMES } from './theme.ts';
import { fieldsOf } from './ui.tsx';

interface PageOf {
  to: string;
  name: string;
  /** Whether the application that is chosen above says what the page shows. */
  hasApp: boolean;
  /** Whether the user that is chosen there does. */
  hasUser: (asked: { of?: string }, features: Settings['features']) => boolean;
}
const always = () => true;
const never = () => false;

const PAGES = [
  { to: '/talk', name: 'Talk', hasApp: true, hasUser: always },
  { to: '/sessions', name: 'Sessions', hasApp: true, hasUser: always },
  { to: '/invocations', name: 'Invocations', hasApp: true, hasUser: never },
  { to: '/tasks', name: 'Tasks', hasApp: false, hasUser: never },
  { to: '/usage', name: 'Usage', hasApp: true, hasUser: ({ of }) => of === 'user' },
  { to: '/quality', name: 'Quality', hasApp: true, hasUser: never },
  {
    to: '/operations',
    name: 'Operations',
    hasApp: false,
    hasUser: (_asked, { cronjobs, webhooks }) => cronjobs || webhooks,
  },
] as const satisfies PageOf[];

/** Whose thing a page of one shows, by its address: its lists begin there. */
function useShown() {
  const params = useMatches().at(-1)?.params as { appName?: string; userId?: string } | undefined;
  return { ...(params?.appName && { app: params.appName }), ...(params?.userId && { user: params.userId }) };
}

/** The frame of all pages: where they are, and whose data they show. */
export function Shell() {
  const { settings, me, logOut } = useViewer();
  const [theme, setTheme] = useState(currentTheme);
  const shown = useShown();
  const choose = (next: Theme) => {
    applyTheme(next);
    setTheme(next);
  };
  return (
    <>
      <a className="skip" href="#content">
        To the content
      </a>
      <header>
        <strong>Agent runtime</strong>
        <nav aria-label="Pages">
          {PAGES.map(({ to, name }) => (
            <Link
              key={to}
              to={to}
              search={shown}
              activeProps={{ className: 'active' }}
              activeOptions={{ includeSearch: false }}
            >
              {name}
            </Link>
          ))}
        </nav>
        <Whose />
        <div className="viewer">
          {me && <span title="The user of your token">{me}</span>}
          <select aria-label="Colours" value={theme} onChange={(event) => choose(event.target.value as Theme)}>
            {THEMES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
          {settings.mode !== 'local' && <Button onPress={logOut}>Log out</Button>}
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <Outlet />
      </main>
      <footer>
        Version {settings.version} · mode {settings.mode} · times of {ZONE} · <a href={`${SERVICE}/docs`}>API</a>
      </footer>
    </>
  );
}

/** The application and the user of a list, where it is of one. */
function Whose() {
  const { me, settings } = useViewer();
  const { app, apps, user, users, isPending } = useScope();
  const navigate = useNavigate();
  const asked = useSearch({ strict: false }) as { of?: string };
  const fullPath = useMatches().at(-1)?.fullPath;
  const here: PageOf | undefined = PAGES.find(({ to }) => to === fullPath);
  const hasApp = here?.hasApp ?? false;
  const isOfUser = me === undefined && (here?.hasUser(asked, settings.features) ?? false);
  if (!hasApp && !isOfUser) return null;
  const go = (chosen: { app?: string; user?: string | undefined }) =>
    void navigate({
      to: '.',
      search: (before: object) => ({ ...before, ...chosen, ...(chosen.app && { every: undefined }) }),
    });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    go({ user: fieldsOf(event.currentTarget)['user'] });
  };
  return (
    <form className="whose" onSubmit={submit}>
      {hasApp && (
        <label>
          App
          <select value={app} onChange={(event) => go({ app: event.target.value })}>
            {[...new Set([...apps, ...(app ? [app] : [])])].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      {isOfUser && (
        <label>
          User
          <input name="user" key={user} defaultValue={user} disabled={isPending} list="users" autoComplete="off" />
        </label>
      )}
      <datalist id="users">
        {users.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </datalist>
    </form>
  );
}
