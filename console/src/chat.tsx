import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import {
  type ClipboardEvent,
  type FormEvent,
  type KeyboardEvent,
  useCallback,
  useEffect,
  useId,
  useMemo,
  useRef,
  useState,
} from 'react';
import { Button } from 'react-aria-components';
import { api, ApiError, ask, type Event, inPath, type Schemas, type SessionName } from './api.ts';
import { callerQuery, useScope, useViewer } from './context.tsx';
import { Conversation } from './conversation.tsx';
import { keepDraft, readDraft, useDraft } from './draft.ts';
import { isSteer, type Item, partsOf, useEvents } from './events.ts';
import { formatBytes } from './format.ts';
import { type Invocation, isOpen } from './invocation-list.tsx';
import { Markdown } from './markdown.tsx';
import { AnswerForm } from './tasks.tsx';
import { Badge, Folded, Loaded, Loading, Problem, Refusal, Time } from './ui.tsx';

const route = getRouteApi('/talk/$appName/$userId/$sessionId');
/** Invocations that are looked through for those that are open. */
const RECENT = 20;
/** Sessions that are offered to go on with. */
const OFFERED = 8;

type Part = Schemas['Part'];
type Message = Schemas['Content'];

/** Shows `children` to whom the service lets talk, and to all others why not. */
function ForSpeakers({ children }: { children: React.ReactNode }) {
  const caller = useQuery(callerQuery);
  return (
    <Loaded query={caller}>
      {({ scopes }) =>
        scopes.includes('invoke') ? (
          children
        ) : (
          <Refusal>Talking needs the scope “invoke”, which your credential does not have.</Refusal>
        )
      }
    </Loaded>
  );
}

/** A new conversation with the chosen application, or one to go on with. */
export function NewTalkPage() {
  const { app, user, isPending, error, refetch } = useScope();
  const { me } = useViewer();
  const [named, setNamed] = useState('');
  const navigate = useNavigate();
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (isPending) return <Loading />;
  const speaker = user || named.trim() || 'u1';
  const begin = async (message: Message, attempt: string) => {
    // The session that was made for a message that was then refused is used for the next one.
    const place = `${app} ${speaker} session`;
    const key = readDraft(place) ?? newKey();
    keepDraft(place, key);
    const made = await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions', {
        params: { path: { app_name: app, user_id: speaker }, header: { 'idempotency-key': key } },
        body: {},
      }),
    );
    const name = { app, user: speaker, session: made.id };
    await startTurn(name, { newMessage: message }, attempt);
    keepDraft(place, '');
    await navigate({
      to: '/talk/$appName/$userId/$sessionId',
      params: { appName: app, userId: speaker, sessionId: made.id },
      search: { app, user: speaker },
    });
  };
  return (
    <>
      <h1>Talk</h1>
      <ForSpeakers>
        <p className="hint">
          A new session of {user ? <strong>{user}</strong> : 'a user'} with <strong>{app}</strong>.
        </p>
        {user === '' && me === undefined && (
          <p>
            <label>
              As user{' '}
              <input value={named} placeholder="u1" maxLength={256} onChange={({ target }) => setNamed(target.value)} />
            </label>
          </p>
        )}
        <Composer key={`${app} ${speaker}`} draft={`${app} ${speaker}`} send={begin} />
      </ForSpeakers>
      {user !== '' && <Earlier key={`${app} ${user}`} app={app} user={user} />}
    </>
  );
}

/** The sessions that changed last. */
function Earlier({ app, user }: { app: string; user: string }) {
  const query = useQuery({
    queryKey: ['earlier', app, user],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions', {
          params: { path: { app_name: app, user_id: user }, query: { limit: OFFERED, withDetails: true } },
        }),
      ),
  });
  if (query.data?.length === 0) return null;
  return (
    <>
      <h2>Go on with</h2>
      <Loaded query={query}>
        {(sessions) => (
          <ul>
            {sessions.map(({ id, firstText, lastUpdateTime }) => (
              <li key={id}>
                <Link
                  to="/talk/$appName/$userId/$sessionId"
                  params={{ appName: app, userId: user, sessionId: id }}
                  search={{ app, user }}
                >
                  {firstText || id}
                </Link>{' '}
                <span className="hint">
                  <Time at={lastUpdateTime} age />
                </span>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </>
  );
}

/** A conversation that goes on: what was said, what runs, what is asked, and a field. */
export function TalkPage() {
  const { appName: app, userId: user, sessionId: session } = route.useParams();
  const name = useMemo(() => ({ app, user, session }), [app, user, session]);
  return <Talk key={`${app} ${user} ${session}`} name={name} />;
}

function Talk({ name }: { name: SessionName }) {
  const { app, user, session } = name;
  const { items, open, error, isLost } = useEvents(name);
  const turns = useTurns(name, items.at(-1)?.sequence ?? 0);
  const caller = useQuery(callerQuery);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [edited, setEdited] = useState<Item>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['turns', name] });
  const mayTalk = caller.data?.scopes.includes('invoke') ?? false;
  const mayFork = mayTalk && (caller.data?.scopes.includes('write') ?? false);
  const place = `${app} ${user} ${session}`;
  const [said, keepSaid] = useDraft(`${place} said`);
  const sent = useMemo(() => sentOf(said), [said]);
  const toActions = useCallback(
    (item: Item) => (
      <>
        {beganTurn(item.event, sent) && <span className="hint">the answer ended first: this began the next turn</span>}
        {mayFork && isQuestion(item.event) && <Button onPress={() => setEdited(item)}>Edit</Button>}
      </>
    ),
    [mayFork, sent],
  );
  const waiting = sent.filter(({ id }) => turns.data?.some((turn) => turn.id === id && isQueued(turn)));
  const [returned, setReturned] = useState(0);
  const say = async (message: Message, attempt: string, policy?: Policy) => {
    const { id, status } = await startTurn(name, { newMessage: message }, attempt, policy);
    const text = message.parts?.flatMap((part) => part.text ?? []).join('\n') ?? '';
    // Of one that waits no more only what it was sent to do is kept.
    const others = sent.flatMap((other) =>
      waiting.includes(other) ? [other] : other.policy === 'steer' ? [{ ...other, text: '' }] : [],
    );
    if (id !== undefined && status === 'queued' && text !== '')
      keepSaid(JSON.stringify([...others, { id, text, policy }].slice(-MAX_SENT)));
    await refresh();
  };
  const putBack = (texts: string[]) => {
    const draft = readDraft(place);
    const missing = texts.filter((text) => draft?.includes(text) !== true);
    if (missing.length === 0) return;
    keepDraft(place, [...missing, ...(draft === undefined ? [] : [draft])].join('\n'));
    setReturned((count) => count + 1);
  };
  /** What was said and never began is in the field again. */
  const takeBack = (stopped: Invocation[]) => {
    const isBack = ({ id }: Sent) => stopped.some((turn) => turn.id === id && turn.startTime === undefined);
    const back = sent.filter(isBack);
    if (back.length === 0) return;
    putBack(back.map(({ text }) => text));
    keepSaid(JSON.stringify(sent.filter((each) => !isBack(each))));
  };
  const askOtherwise = async (message: Message, attempt: string) => {
    const { id } = await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/fork', {
        params: { path: inPath(name), header: { 'idempotency-key': `${attempt} fork` } },
        body: { atSequence: (edited?.sequence ?? 1) - 1 },
      }),
    );
    await startTurn({ ...name, session: id }, { newMessage: message }, attempt);
    await navigate({
      to: '/talk/$appName/$userId/$sessionId',
      params: { appName: app, userId: user, sessionId: id },
    });
  };
  return (
    <div className="talk">
      <div className="head">
        <h1>Talk with {app}</h1>
        <p className="actions">
          <Link
            to="/sessions/$appName/$userId/$sessionId"
            params={{ appName: app, userId: user, sessionId: session }}
            search={{ app, user }}
          >
            Session {session}
          </Link>{' '}
          <Link to="/talk" search={{ app, user }}>
            New talk
          </Link>
        </p>
      </div>
      {error && <Problem error={error} />}
      {isLost && (
        <output className="problem">
          The connection is lost. What was asked goes on; the page connects again by itself.
        </output>
      )}
      <Conversation items={items} open={open} goTo={undefined} isLive name={name} toActions={toActions} />
      {turns.error && <Problem error={turns.error} retry={() => void turns.refetch()} />}
      <Asked name={name} isPaused={turns.data?.some(({ status }) => status === 'paused') ?? false} mayTalk={mayTalk} />
      {waiting.map(({ id, text, policy }) => (
        <article key={id} className="event user">
          <h3>
            user <span className="hint">{WAITING[policy ?? 'enqueue']}</span>
          </h3>
          <p className="said">{text}</p>
        </article>
      ))}
      <Turns
        name={name}
        turns={turns.data ?? []}
        mayTalk={mayTalk}
        onChange={refresh}
        onStopped={takeBack}
        putBack={putBack}
      />
      <ForSpeakers>
        {edited ? (
          <Composer
            key={edited.sequence}
            draft={`${place} ${edited.sequence}`}
            start={edited.event}
            title={`Edit #${edited.sequence}: it is asked again in a copy of the session, which ends before it.`}
            onBack={() => setEdited(undefined)}
            send={askOtherwise}
          />
        ) : (
          <Composer key={`say ${returned}`} draft={place} isBusy={turns.data?.some(isActive)} send={say} />
        )}
      </ForSpeakers>
    </div>
  );
}

/** What becomes of a message while an answer runs. */
type Policy = 'steer' | 'enqueue' | 'interrupt';
const POLICIES = [
  ['steer', 'Steer', 'The agent goes on, and reads it before its next step.'],
  ['enqueue', 'Queue', 'It waits, and is answered after what runs.'],
  ['interrupt', 'Interrupt', 'What runs ends unfinished, and this is answered in its place.'],
] as const;
const WAITING: Record<Policy, string> = {
  steer: 'waits for the next step of the agent, which reads it then',
  enqueue: 'waits for its turn',
  interrupt: 'waits until what runs has ended',
};

interface Sent {
  id: string;
  text: string;
  policy?: Policy;
}
/** The messages of this tab that waited when they were sent, the oldest first; those that steer also afterwards. */
const sentOf = (said: string) => (said === '' ? [] : (JSON.parse(said) as Sent[]));
const MAX_SENT = 50;

/** True for a message that was sent to steer, and that no invocation took before it ended. */
const beganTurn = (event: Event, sent: Sent[]) =>
  event.author === 'user' &&
  !isSteer(event) &&
  sent.some(({ id, policy }) => policy === 'steer' && id === event.invocationId);

const isQuestion = (event: Event) =>
  event.author === 'user' && partsOf(event).some(({ text, inlineData }) => text || inlineData);

/** The last invocations of a session, the newest first: again with each event that comes, and while one is open. */
function useTurns(name: SessionName, last: number) {
  const queries = useQueryClient();
  useEffect(() => {
    const timer = setTimeout(() => void queries.invalidateQueries({ queryKey: ['turns', name] }), 150);
    return () => clearTimeout(timer);
  }, [queries, name, last]);
  return useQuery({
    queryKey: ['turns', name],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations', {
          params: { path: inPath(name), query: { limit: RECENT } },
        }),
      ),
    refetchInterval: ({ state: { data } }) => (data?.some(isOpen) ? 1_500 : 10_000),
  });
}

interface Turn {
  newMessage?: Message;
  /** An ended invocation that goes on. */
  invocationId?: string;
}

/**
 * Starts a turn; its events come by the stream of the session, whatever becomes of this connection.
 * @param attempt - a second request with the same one starts nothing
 */
async function startTurn(
  name: SessionName,
  turn: Turn,
  attempt: string,
  policy?: Policy,
): Promise<Partial<Invocation>> {
  const asked = api
    .POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations', {
      params: { path: inPath(name), header: { 'idempotency-key': attempt, 'x-double-texting': policy } },
      body: { ...turn, streaming: true },
    })
    .then((answer) => {
      // It has begun, and another process goes on with it: it is not to be sent again.
      const hasBegun = answer.response.status === 503 && answer.response.headers.has('x-invocation-id');
      return hasBegun ? { data: {}, response: Response.json({}) } : answer;
    });
  return ask<Partial<Invocation>>(asked);
}

/**
 * Goes on with a turn that failed. If the service did not keep its message, which then was not asked, nothing begins.
 * @returns that message
 */
async function goOn(name: SessionName, id: string): Promise<string | undefined> {
  try {
    await startTurn(name, { invocationId: id }, newKey());
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 409) throw error;
    const { app, user, session } = name;
    const { items } = await ask(
      api.GET('/apps/{app_name}/invocations', {
        params: { path: { app_name: app }, query: { userId: user, sessionId: session, text: id, limit: 1 } },
      }),
    );
    const { firstText = '' } = items.find((each) => each.id === id) ?? {};
    // Of a longer one the beginning alone is kept.
    if (firstText === '' || firstText.length >= MAX_FIRST_TEXT) throw error;
    return firstText;
  }
}

/** @returns `undefined` for a message that what ran took before: it ends with that */
async function cancel(name: SessionName, id: string): Promise<Invocation | undefined> {
  try {
    return await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations/{invocation_id}/cancel', {
        params: { path: { ...inPath(name), invocation_id: id } },
      }),
    );
  } catch (error) {
    if (error instanceof ApiError && error.status === 409) return undefined;
    throw error;
  }
}

/** Length of the `firstText` of an invocation. */
const MAX_FIRST_TEXT = 200;

/** Random, also where the page came without TLS and has no `randomUUID`. */
const newKey = () => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join('-');

interface TurnsProps {
  name: SessionName;
  turns: Invocation[];
  mayTalk: boolean;
  onChange: () => unknown;
  onStopped: (turns: Invocation[]) => void;
  /** Writes texts into the field, before what is there. */
  putBack: (texts: string[]) => void;
}

/** What runs and can be stopped, what waits for an answer, or how the last turn failed, which can be tried again. */
function Turns({ name, turns, mayTalk, onChange, onStopped, putBack }: TurnsProps) {
  const busy = turns.filter(isActive);
  const paused = turns.filter(({ status }) => status === 'paused');
  const last = turns.find(({ steeredInto }) => steeredInto === undefined);
  const stop = useMutation({
    mutationFn: async (which: Invocation[]) =>
      // The one that was asked last first, so that none begins meanwhile.
      (await Promise.all(which.map(({ id }) => cancel(name, id)))).flatMap((turn) => turn ?? []),
    onSuccess: onStopped,
    onSettled: onChange,
  });
  const again = useMutation({
    mutationFn: (id: string) => goOn(name, id),
    onSuccess: (text) => text !== undefined && putBack([text]),
    onSettled: onChange,
  });
  const waiting = busy.filter(isQueued).length;
  const now = busy.find(({ status }) => status === 'running') ?? busy[0];
  return (
    <div className="turn" aria-live="polite">
      {now && (
        <p>
          <Badge>{now.status}</Badge> {SAYS[now.status] ?? ''}
          {waiting > 0 && now.status !== 'queued' && ` ${waiting} more ${waiting === 1 ? 'waits' : 'wait'}.`}{' '}
          {mayTalk && (
            <Button className="danger" isDisabled={stop.isPending} onPress={() => stop.mutate(busy)}>
              Stop
            </Button>
          )}
        </p>
      )}
      {paused.map((turn) => (
        <p key={turn.id}>
          <Badge>paused</Badge> {SAYS.paused}{' '}
          {mayTalk && (
            <Button className="danger" isDisabled={stop.isPending} onPress={() => stop.mutate([turn])}>
              Cancel what waits
            </Button>
          )}
        </p>
      ))}
      {!now && paused.length === 0 && last && FAILED.test(last.status) && (
        <p>
          <Badge>{last.status}</Badge> {last.error?.message ?? ''}{' '}
          {mayTalk && (
            <Button isDisabled={again.isPending} onPress={() => again.mutate(last.id)}>
              Try again
            </Button>
          )}
        </p>
      )}
      {stop.error && <Problem error={stop.error} />}
      {again.error && <Problem error={again.error} />}
      {again.data !== undefined && (
        <output className="hint">It never began, so its message is in the field again: send it.</output>
      )}
    </div>
  );
}

const isQueued = ({ status }: Invocation) => status === 'queued';
/** Runs, or waits for its turn. */
const isActive = ({ status }: Invocation) => status === 'running' || status === 'queued';

const FAILED = /^(failed|interrupted|cancelled)$/;
const SAYS: Partial<Record<Invocation['status'], string>> = {
  running: 'The agent works.',
  paused: 'It waits for an answer; you can also say something else.',
  queued: 'It waits for its turn.',
};

/** What the session asks and waits for, with a form for each. */
function Asked({ name, isPaused, mayTalk }: { name: SessionName; isPaused: boolean; mayTalk: boolean }) {
  const { me } = useViewer();
  const query = useQuery({
    queryKey: ['asked', name],
    queryFn: () =>
      ask(
        api.GET('/tasks', {
          params: { query: { appName: name.app, ownerId: name.user, sessionId: name.session, state: 'open' } },
        }),
      ),
    enabled: isPaused,
    refetchInterval: 3_000,
  });
  if (!isPaused) return null;
  return (
    <Loaded query={query}>
      {({ items }) =>
        items.map((task) => {
          const { id, kind, form, users, groups, signal, expireTime } = task;
          const isForOthers = users.length + groups.length > 0;
          return (
            <section key={id} className="card" aria-label="The agent asks">
              <Markdown text={form.hint ?? WAITS[kind] ?? form.tool} />
              {kind === 'signal' && <p>Waits for the signal {signal}.</p>}
              {isForOthers && <p className="hint">For {[...users, ...groups].join(', ')}.</p>}
              {form.args && kind !== 'question' && <Folded label={`Arguments of ${form.tool}`} value={form.args} />}
              {expireTime !== undefined && (
                <p className="hint">
                  Until <Time at={expireTime} />
                </p>
              )}
              {kind === 'sleep' || kind === 'signal' || !mayTalk ? null : (
                <AnswerForm task={task} asksWho={isForOthers && me === undefined} />
              )}
              <p className="hint">
                <Link to="/tasks/$taskId" params={{ taskId: id }}>
                  Its task
                </Link>
              </p>
            </section>
          );
        })
      }
    </Loaded>
  );
}

const WAITS: Partial<Record<Schemas['Task']['kind'], string>> = {
  sleep: 'Sleeps.',
  signal: 'Waits for a signal.',
  budget: 'A budget has nothing left.',
};

interface ComposerProps {
  /** Where the text is kept until it is sent. */
  draft: string;
  /** What it begins with. */
  start?: Event;
  title?: string;
  isBusy?: boolean;
  onBack?: () => void;
  /**
   * @param attempt - the same for the same message, until it is sent
   * @param policy - only while an answer runs
   */
  send: (message: Message, attempt: string, policy?: Policy) => Promise<void>;
}

/** A field for a message and its files. What was written stays until the service has taken it. */
function Composer({ draft, start, title, isBusy = false, onBack, send }: ComposerProps) {
  const [text, write] = useDraft(draft, start && textOf(start));
  const [files, setFiles, isKept] = useFiles(`${draft} files`, start);
  const [error, setError] = useState<Error>();
  const [isSending, setSending] = useState(false);
  const [policy, setPolicy] = useState<Policy>('steer');
  // Also after a reload the same message is sent with the same key.
  const [attempt, keepAttempt] = useDraft(`${draft} attempt`);
  const isEmpty = text.trim() === '' && files.length === 0;
  const submit = async () => {
    if (isEmpty || isSending) return;
    const parts = [...(text.trim() === '' ? [] : [{ text }]), ...files.map(({ part }) => part)];
    const message: Message = { role: 'user', parts };
    const body = JSON.stringify([text, ...files.map(({ id }) => id)]);
    const last = attempt === '' ? undefined : (JSON.parse(attempt) as { body: string; key: string });
    const key = last?.body === body ? last.key : newKey();
    keepAttempt(JSON.stringify({ body, key }));
    setSending(true);
    setError(undefined);
    try {
      await send(message, key, isBusy ? policy : undefined);
      keepAttempt('');
      write('');
      setFiles(() => []);
      setPolicy('steer');
    } catch (reason) {
      setError(reason as Error);
    } finally {
      setSending(false);
    }
  };
  const attach = (chosen: Iterable<File>) => {
    setError(undefined);
    Promise.all([...chosen].map(toPart)).then(
      (parts) => setFiles((before) => [...before, ...parts.map((part) => ({ id: newKey(), part }))]),
      (reason: Error) => setError(reason),
    );
  };
  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void submit();
  };
  const onPaste = (event: ClipboardEvent<HTMLTextAreaElement>) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    void submit();
  };
  return (
    <form className="composer" onSubmit={onSubmit} aria-label="Say something">
      {title && <p className="hint">{title}</p>}
      <label>
        Message
        <textarea
          rows={3}
          value={text}
          onChange={({ target }) => write(target.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
      </label>
      {files.length > 0 && (
        <ul className="files" aria-label="Attached files">
          {files.map(({ id, part: { inlineData } }) => (
            <li key={id}>
              {inlineData?.displayName ?? inlineData?.mimeType}{' '}
              <span className="hint">{formatBytes(bytesOf(inlineData?.data))}</span>{' '}
              <Button
                aria-label={`Remove ${inlineData?.displayName ?? 'the file'}`}
                onPress={() => setFiles((before) => before.filter((file) => file.id !== id))}
              >
                Remove
              </Button>
            </li>
          ))}
        </ul>
      )}
      {!isKept && <p className="hint">The tab cannot keep files of this size: a reload loses them, not the text.</p>}
      {error && <Problem error={error} />}
      {isBusy && <Policies chosen={policy} choose={setPolicy} />}
      <div className="actions">
        <Button type="submit" className="primary" isDisabled={isEmpty || isSending}>
          {isSending ? 'Sending…' : start ? 'Ask again' : 'Send'}
        </Button>
        <label className="attach">
          Attach files
          <input
            type="file"
            multiple
            onChange={({ target }) => {
              attach(target.files ?? []);
              target.value = '';
            }}
          />
        </label>
        {onBack && <Button onPress={onBack}>Back</Button>}
        <span className="hint">Enter sends, Shift+Enter begins a line.</span>
      </div>
    </form>
  );
}

/** What becomes of the message that is written while an answer runs. */
function Policies({ chosen, choose }: { chosen: Policy; choose: (policy: Policy) => void }) {
  const name = useId();
  return (
    <fieldset className="policies">
      <legend>While the agent works</legend>
      {POLICIES.map(([policy, label, meaning]) => (
        <label key={policy} title={meaning}>
          <input type="radio" name={name} checked={chosen === policy} onChange={() => choose(policy)} />
          {label}
        </label>
      ))}
      <p className="hint">{POLICIES.find(([policy]) => policy === chosen)?.[2]}</p>
    </fieldset>
  );
}

interface Attached {
  /** Random: says whether a message is the same as the one that was sent last, without its bytes. */
  id: string;
  part: Part;
}
/** Characters of files that a tab keeps. Browsers give a page about 5 million, which text needs too. */
const MAX_KEPT = 3_500_000;

/** The files of a message, kept in the tab like its text as far as it takes them. */
function useFiles(name: string, start: Event | undefined) {
  const [kept, keep] = useDraft(name);
  const [files, setFiles] = useState<Attached[]>(() =>
    kept !== ''
      ? (JSON.parse(kept) as Attached[])
      : start
        ? partsOf(start).flatMap((part, index) => (part.inlineData ? [{ id: `${index}`, part }] : []))
        : [],
  );
  const [isKept, setKept] = useState(true);
  const latest = useRef(files);
  const change = (toNext: (before: Attached[]) => Attached[]) => {
    const next = toNext(latest.current);
    latest.current = next;
    const text = next.length === 0 ? '' : JSON.stringify(next);
    setFiles(next);
    const isSmall = text.length <= MAX_KEPT;
    setKept(keep(isSmall ? text : '') && isSmall);
  };
  return [files, change, isKept] as const;
}

const textOf = (event: Event) =>
  partsOf(event)
    .flatMap(({ text }) => text ?? [])
    .join('\n');

const bytesOf = (base64: string | null | undefined) => Math.floor(((base64?.length ?? 0) * 3) / 4);

/** More than any request may have is not read. */
const MAX_FILE = 75e6;

/** A file as a part of a message: its bytes go with it. */
async function toPart(file: File): Promise<Part> {
  if (file.size > MAX_FILE)
    throw new ApiError(0, `${file.name} is too large: a message takes ${formatBytes(MAX_FILE)}.`);
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(typeof reader.result === 'string' ? reader.result : ''));
    reader.addEventListener('error', () => reject(new Error(`${file.name} cannot be read.`)));
    reader.readAsDataURL(file);
  });
  const mimeType = file.type || 'application/octet-stream';
  return { inlineData: { displayName: file.name, mimeType, data: url.slice(url.indexOf(',') + 1) } };
}
