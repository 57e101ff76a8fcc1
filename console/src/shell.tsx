import { Link, Outlet, useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import { useScope, useViewer } from './context.tsx';
import { SERVICE } from './place.ts';
import { applyTheme, currentTheme, type Theme, THEMES } from './theme.ts';
import { fieldsOf } from './ui.tsx';

const PAGES = [
  ['/sessions', 'Sessions'],
  ['/invocations', 'Invocations'],
  ['/tasks', 'Tasks'],
  ['/usage', 'Use'],
  ['/quality', 'Quality'],
  ['/operations', 'Operations'],
] as const;

/** The frame of all pages: where they are, and whose data they show. */
export function Shell() {
  const { settings, me, logOut } = useViewer();
  const [theme, setTheme] = useState(currentTheme);
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
          {PAGES.map(([to, name]) => (
            <Link key={to} to={to} activeProps={{ className: 'active' }}>
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
        Version {settings.version} · mode {settings.mode} · <a href={`${SERVICE}/docs`}>API</a>
      </footer>
    </>
  );
}

/** The application and the user of the lists. */
function Whose() {
  const { me } = useViewer();
  const { app, apps, user, users } = useScope();
  const navigate = useNavigate();
  const go = (chosen: { app?: string; user?: string | undefined }) =>
    void navigate({ to: '.', search: (before: object) => ({ ...before, ...chosen }) });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    go({ user: fieldsOf(event.currentTarget)['user'] });
  };
  return (
    <form className="whose" onSubmit={submit}>
      <label>
        App
        <select value={app} onChange={(event) => go({ app: event.target.value })}>
          {[...new Set([...apps, ...(app ? [app] : [])])].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {me === undefined && (
        <label>
          User
          <input name="user" key={user} defaultValue={user} list="users" autoComplete="off" />
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
