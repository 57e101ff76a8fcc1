import { Link, Outlet, useMatches, useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import { useScope, useViewer } from './context.tsx';
import { ZONE } from './format.ts';
import { SERVICE } from './place.ts';
import { applyTheme, currentTheme, type Theme, THEMES } from './theme.ts';
import { fieldsOf } from './ui.tsx';

/** The pages, and whether the application and the user that are chosen above say what they show. */
const PAGES = [
  { to: '/sessions', name: 'Sessions', hasApp: true, hasUser: true },
  { to: '/invocations', name: 'Invocations', hasApp: true, hasUser: true },
  { to: '/tasks', name: 'Tasks', hasApp: false, hasUser: false },
  { to: '/usage', name: 'Usage', hasApp: true, hasUser: true },
  { to: '/quality', name: 'Quality', hasApp: true, hasUser: false },
  { to: '/operations', name: 'Operations', hasApp: false, hasUser: true },
] as const;

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
  const { me } = useViewer();
  const { app, apps, user, users, isPending } = useScope();
  const navigate = useNavigate();
  const here = useMatches().at(-1)?.fullPath;
  const { hasApp = false, hasUser = false } = PAGES.find(({ to }) => to === here) ?? {};
  if (!hasApp && (!hasUser || me !== undefined)) return null;
  const go = (chosen: { app?: string; user?: string | undefined }) =>
    void navigate({ to: '.', search: (before: object) => ({ ...before, ...chosen }) });
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
      {hasUser && me === undefined && (
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
