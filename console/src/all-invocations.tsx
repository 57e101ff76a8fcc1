import { getRouteApi, Link } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import { useScope, useViewer } from './context.tsx';
import { InvocationList } from './invocation-list.tsx';
import { Effects } from './invocations.tsx';
import { fieldsOf, Loading, Problem } from './ui.tsx';

const route = getRouteApi('/invocations');
const FAILED = 'failed,interrupted,cancelled';
const STATUSES = [
  ['', 'any'],
  [FAILED, 'did not succeed'],
  ['queued,running,paused', 'runs or waits'],
  ...['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'].map((each) => [each, each]),
] as const;

/** What an application was asked by all users, or by one, and what became of it. */
export function InvocationsPage() {
  const { app, apps, user, isPending, error, refetch } = useScope();
  const { me } = useViewer();
  const { of, app: _app, user: _user, ...search } = route.useSearch();
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (isPending) return <Loading />;
  return (
    <>
      <h1>Invocations</h1>
      <p className="actions">
        <Link to="/invocations" search={{ app, status: FAILED, after: today() }}>
          What failed today
        </Link>
        <Link to="/invocations" search={{ app }}>
          All
        </Link>
        <span className="hint">
          Of the application <strong>{app}</strong>
          {apps.length > 1 && `; the other ${apps.length - 1} are chosen above`}.
        </span>
      </p>
      <FoldedFilters />
      <InvocationList app={app} filter={{ ...search, user: me ?? of }} />
      {user !== '' && (
        <>
          <h2>Uncertain tool calls</h2>
          <p className="hint">Of {of ?? user}.</p>
          <Effects app={app} user={of ?? user} />
        </>
      )}
    </>
  );
}

/** Today as a field of a date has it. */
function today(): string {
  const now = new Date();
  const two = (part: number) => String(part).padStart(2, '0');
  return `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
}

/** Open at first where they leave room for the list. */
function FoldedFilters() {
  const [isOpen, setOpen] = useState(() => matchMedia('(min-width: 721px)').matches);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Filters</summary>
      <Filters />
    </details>
  );
}

function Filters() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { me } = useViewer();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = fieldsOf(event.currentTarget);
    void navigate({ search: (before) => ({ ...before, ...values }) });
  };
  return (
    <form className="filters" onSubmit={submit} key={JSON.stringify(search)} aria-label="Search">
      <label>
        Question, or id of session or invocation
        <input name="text" type="search" maxLength={256} defaultValue={search.text} />
      </label>
      <label>
        Status
        <select name="status" defaultValue={search.status ?? ''}>
          {STATUSES.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <label>
        Error code
        <input name="error" maxLength={256} defaultValue={search.error} />
      </label>
      <label>
        Agent
        <input name="agent" maxLength={256} defaultValue={search.agent} />
      </label>
      <label>
        Version
        <input name="version" maxLength={256} defaultValue={search.version} />
      </label>
      {me === undefined && (
        <label>
          Of user
          <input name="of" maxLength={256} list="users" autoComplete="off" placeholder="all" defaultValue={search.of} />
        </label>
      )}
      <label>
        Session
        <input name="session" maxLength={256} defaultValue={search.session} />
      </label>
      <label>
        Requested after
        <input name="after" type="date" defaultValue={search.after} />
      </label>
      <label>
        before
        <input name="before" type="date" defaultValue={search.before} />
      </label>
      <Button type="submit">Search</Button>
    </form>
  );
}
