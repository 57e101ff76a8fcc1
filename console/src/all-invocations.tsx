import { getRouteApi, Link } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import { useScope, useViewer } from './context.tsx';
import { FAILED, InvocationList } from './invocation-list.tsx';
import { Effects } from './invocations.tsx';
import { fieldsOf, Loading, Problem } from './ui.tsx';

const route = getRouteApi('/invocations');
const STATUSES = [
  ['', 'any'],
  [FAILED, 'failed or interrupted'],
  ['queued,running,paused', 'runs or waits'],
  ...['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'].map((each) => [each, each]),
] as const;

/** What an application, or all of them, were asked by all users, or by one, and what became of it. */
export function InvocationsPage() {
  const { app, apps, isPending, error, refetch } = useScope();
  const { me } = useViewer();
  const { of, every, app: _app, user: _user, ...search } = route.useSearch();
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (isPending) return <Loading />;
  return (
    <>
      <h1>Invocations</h1>
      <p className="actions">
        <Link to="/invocations" search={{ app, every, status: FAILED, after: today() }}>
          What failed today
        </Link>
        <Link to="/invocations" search={{ app, every, tools: 'failed', after: today() }}>
          With failed tool calls today
        </Link>
        <Link to="/invocations" search={{ app, every }}>
          All
        </Link>
        {apps.length > 1 && (
          <Link to="/invocations" search={{ ...search, app, of, every: every === undefined ? 'yes' : undefined }}>
            {every === undefined ? 'All applications' : `Only ${app}`}
          </Link>
        )}
        <span className="hint">
          {every === undefined ? (
            <>
              Of the application <strong>{app}</strong>.
            </>
          ) : (
            <>
              Of <strong>all {apps.length} applications</strong>.
            </>
          )}
        </span>
      </p>
      <FoldedFilters />
      <InvocationList app={every === undefined ? app : undefined} filter={{ ...search, user: me ?? of }} />
      <h2>Uncertain tool calls</h2>
      <Uncertain key={`${app} ${of}`} app={app} chosen={me ?? of} />
    </>
  );
}

/** The tool calls of one user, who is named, of which nobody knows what became. */
function Uncertain({ app, chosen }: { app: string; chosen: string | undefined }) {
  const { me } = useViewer();
  const [user, setUser] = useState(chosen);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setUser(fieldsOf(event.currentTarget)['uncertain']);
  };
  return (
    <>
      <p className="hint">
        Calls that may have acted when their process stopped; a person says what became of them. They are listed for one
        user of {app}.
      </p>
      {me === undefined && (
        <form className="filters" onSubmit={submit} aria-label="Whose uncertain tool calls">
          <label>
            Calls of user
            <input name="uncertain" maxLength={256} list="users" autoComplete="off" defaultValue={user} required />
          </label>
          <Button type="submit">Show</Button>
        </form>
      )}
      {user !== undefined && (
        <>
          {me === undefined && (
            <p>
              Of <strong>{user}</strong>:
            </p>
          )}
          <Effects app={app} user={user} />
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
        Tool calls
        <select name="tools" defaultValue={search.tools ?? ''}>
          <option value="">any</option>
          <option value="failed">with failed ones</option>
        </select>
      </label>
      <label>
        Waiting
        <select name="waits" defaultValue={search.waits ?? ''}>
          <option value="">any</option>
          <option value="stranded">for what is gone</option>
        </select>
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
