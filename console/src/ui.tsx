import { Link } from '@tanstack/react-router';
import { type ReactNode, useEffect, useRef, useState, use } from 'react';
import { Button, Dialog, DialogTrigger, Heading, Modal, ModalOverlay } from 'react-aria-components';
import { ApiError, type SessionName } from './api.ts';
import { useScope, ViewerContext } from './context.tsx';
import { formatAge, formatJson, formatMoment, toDate, ZONE } from './format.ts';

/** A time in the zone of the viewer, which is named on hover, with UTC; `exact` with milliseconds. */
export function Time(props: { at: number | string | undefined; age?: boolean; exact?: boolean }) {
  const { at, age = false, exact = false } = props;
  if (at === undefined) return <>–</>;
  const utc = toDate(at).toISOString();
  return (
    <time dateTime={utc} title={`${formatMoment(at, exact)} ${ZONE} · ${utc}`}>
      {age ? formatAge(at) : formatMoment(at, exact)}
    </time>
  );
}

/** A word in a colour, which says the same. */
export const Badge = ({ children, tone, title }: { children: ReactNode; tone?: string; title?: string }) => (
  <span className={`badge ${tone ?? (typeof children === 'string' ? statusTone(children) : '')}`} title={title}>
    {children}
  </span>
);

function statusTone(word: string): string {
  if (/^(succeeded|success|done|answered|delivered|passed|same|ready|settled)$/.test(word)) return 'good';
  if (/^(failed|error|cancelled|interrupted|unknown|different|stopped)$/.test(word)) return 'bad';
  return /^(running|queued|paused|open|pending|retrying|waiting|started|skipped)$/.test(word) ? 'busy' : '';
}

/** A link to the page of an invocation. */
export const InvocationLink = (props: { name: SessionName; id: string; children: ReactNode }) => (
  <Link
    to="/invocations/$appName/$userId/$sessionId/$invocationId"
    params={{ appName: props.name.app, userId: props.name.user, sessionId: props.name.session, invocationId: props.id }}
    search={{ app: props.name.app, user: props.name.user }}
  >
    {props.children}
  </Link>
);

/** What went wrong, in the words of the service; for what it refuses see {@link Refusal}. */
export function Problem({ error, retry }: { error: Error; retry?: () => void }) {
  const code = error instanceof ApiError ? error.status : 0;
  if (code === 403) return <Refusal>{error.message}</Refusal>;
  // What is not there, or not understood, will not be so at a second try either.
  const mayHelp = code < 400 || code >= 500 || code === 408 || code === 409 || code === 429;
  return (
    <div className="problem" role="alert">
      <p>
        {error.message}
        {code > 0 && ` (${code})`}
      </p>
      {code === 404 && <BackToList />}
      {retry && mayHelp && <Button onPress={retry}>Try again</Button>}
    </div>
  );
}

/** The way back from something that does not exist. */
export const BackToList = () => (
  <p>
    It may have been deleted, or belong to another user. <Link to="/sessions">Back to the sessions</Link>
  </p>
);

/** What the service refuses to show or to do: why, and what one can do. All refusals look like this. */
export function Refusal(props: { title?: string; children: ReactNode; todo?: ReactNode }) {
  const { title = 'Not allowed.', children, todo } = props;
  const mode = use(ViewerContext)?.settings.mode;
  return (
    <div className="refusal" role="note">
      <strong>{title}</strong> {children}{' '}
      {todo ?? (mode === 'jwt' ? 'Log in as somebody who may.' : 'Log out, and log in with a key that may.')}
    </div>
  );
}

/** What a setting of the service switches off. */
export const SwitchedOff = ({ what, setting }: { what: string; setting: string }) => (
  <Refusal
    title="Switched off."
    todo={
      <>
        <code>{setting}=true</code> switches them on.
      </>
    }
  >
    This service has no {what.toLowerCase()}.
  </Refusal>
);

/** What is shown for one user: the chosen one, or why there is none. */
export function ForUser({ children }: { children: (app: string, user: string) => ReactNode }) {
  const { app, user, isPending, error, usersError, refetch } = useScope();
  const settings = use(ViewerContext)?.settings;
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (isPending) return <Loading />;
  if (user !== '') return <>{children(app, user)}</>;
  if (usersError instanceof ApiError && usersError.status === 403)
    return <Refusal todo="Name a user above.">This key may not list the users.</Refusal>;
  if (usersError) return <Problem error={usersError} retry={() => void refetch()} />;
  return (
    <Empty>
      Nobody has a session here yet
      {settings?.mode === 'local' ? ': send a first message, as the start printed it' : ''}. You can also name a user
      above.
    </Empty>
  );
}

export const Empty = ({ children }: { children: ReactNode }) => <p className="empty">{children}</p>;
export const Loading = () => <output className="loading">Loading…</output>;

/** A query, as far as its states are shown. */
export interface Query<Data> {
  data: Data | undefined;
  error: Error | null;
  isPending: boolean;
  refetch: () => unknown;
}

/** The states of a query: loading, wrong, there. */
export function Loaded<Data>(props: { query: Query<Data>; children: (data: Data) => ReactNode }) {
  const { query, children } = props;
  // What is there stays, and is said to be old.
  if (query.data !== undefined)
    return (
      <>
        {query.error && <Problem error={query.error} retry={() => void query.refetch()} />}
        {children(query.data)}
      </>
    );
  if (query.error) return <Problem error={query.error} retry={() => void query.refetch()} />;
  return query.isPending ? <Loading /> : null;
}

/** A value as JSON, written when it is opened. */
export function Folded({ label, value, open = false }: { label: ReactNode; value: unknown; open?: boolean }) {
  const [isOpen, setOpen] = useState(open);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{label}</summary>
      {isOpen && <Json value={value} />}
    </details>
  );
}

export const Json = ({ value }: { value: unknown }) => (
  <pre className="json" tabIndex={0}>
    {typeof value === 'string' ? value : formatJson(value)}
  </pre>
);

interface Question {
  /** The words of the button that asks. */
  label: string;
  title: string;
  /** The words of the button that does it. */
  action: string;
  children?: ReactNode;
  run: () => Promise<unknown>;
  isDangerous?: boolean;
}

/** A button that asks before it acts, and says there what went wrong. */
export function Ask({ label, title, action, children, run, isDangerous = false }: Question) {
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const start = (close: () => void) => {
    setBusy(true);
    setError(undefined);
    run()
      .then(close, (reason: Error) => setError(reason))
      .finally(() => setBusy(false));
  };
  return (
    <DialogTrigger onOpenChange={() => setError(undefined)}>
      <Button className={isDangerous ? 'danger' : ''}>{label}</Button>
      <ModalOverlay className="overlay" isDismissable>
        <Modal className="modal">
          <Dialog role="alertdialog">
            {({ close }) => (
              <>
                <Heading slot="title">{title}</Heading>
                {children}
                {error && <Problem error={error} />}
                <div className="actions">
                  <Button onPress={close}>Back</Button>
                  <Button
                    className={isDangerous ? 'danger' : 'primary'}
                    isDisabled={isBusy}
                    onPress={() => start(close)}
                  >
                    {action}
                  </Button>
                </div>
              </>
            )}
          </Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  );
}

/** A table that scrolls within itself where the window is narrow, and says so. */
export function Table({ label, head, children }: { label: string; head: string[]; children: ReactNode }) {
  const place = useRef<HTMLElement>(null);
  const [isCut, setCut] = useState(false);
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const observer = new ResizeObserver(() => setCut(box.scrollWidth > box.clientWidth + 1));
    for (const each of [box, ...box.children]) observer.observe(each);
    return () => observer.disconnect();
  }, []);
  return (
    <section className="scroll" aria-label={label} tabIndex={0} ref={place}>
      {isCut && <p className="sideways">Wider than the window: scroll it sideways →</p>}
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

/** What the fields of a form hold, empty ones as `undefined`. */
export const fieldsOf = (form: HTMLFormElement): Record<string, string | undefined> =>
  Object.fromEntries(
    [...new FormData(form)].map(([name, value]) => [name, (typeof value === 'string' && value.trim()) || undefined]),
  );

/** Names and values. */
export const Facts = ({ facts }: { facts: [name: string, value: ReactNode][] }) => (
  <dl className="facts">
    {facts.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);
