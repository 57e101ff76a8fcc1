import { type ReactNode, useState } from 'react';
import { Button, Dialog, DialogTrigger, Heading, Modal, ModalOverlay } from 'react-aria-components';
import { ApiError } from './api.ts';
import { formatAge, formatJson, formatMoment, toDate } from './format.ts';

/** A time in the zone of the viewer, UTC on hover. */
export function Time({ at, age = false }: { at: number | string | undefined; age?: boolean }) {
  if (at === undefined) return <>–</>;
  const utc = toDate(at).toISOString();
  return (
    <time dateTime={utc} title={age ? `${formatMoment(at)} · ${utc}` : utc}>
      {age ? formatAge(at) : formatMoment(at)}
    </time>
  );
}

/** A word in a colour, which says the same. */
export const Badge = ({ children, tone }: { children: ReactNode; tone?: string }) => (
  <span className={`badge ${tone ?? (typeof children === 'string' ? statusTone(children) : '')}`}>{children}</span>
);

function statusTone(word: string): string {
  if (/^(succeeded|success|done|answered|delivered|passed|same|ready)$/.test(word)) return 'good';
  if (/^(failed|error|cancelled|interrupted|unknown|different|stopped)$/.test(word)) return 'bad';
  return /^(running|queued|paused|open|pending|retrying|waiting)$/.test(word) ? 'busy' : '';
}

/** What went wrong, in the words of the service. */
export function Problem({ error, retry }: { error: Error; retry?: () => void }) {
  const status = error instanceof ApiError && error.status > 0 ? ` (${error.status})` : '';
  return (
    <div className="problem" role="alert">
      <p>
        {error.message}
        {status}
      </p>
      {retry && <Button onPress={retry}>Try again</Button>}
    </div>
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
  if (query.data !== undefined) return <>{children(query.data)}</>;
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

/** A table that scrolls within itself where the window is narrow. */
export function Table({ label, head, children }: { label: string; head: string[]; children: ReactNode }) {
  return (
    <section className="scroll" aria-label={label} tabIndex={0}>
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
