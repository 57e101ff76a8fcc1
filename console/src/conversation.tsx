import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { api, ask, type Event, type SessionName } from './api.ts';
import { Content, Shown } from './artifacts.tsx';
import { ChildLink, ResultOf } from './children.tsx';
import { isSteer, type Item, partsOf, resultOf, type SessionEvents } from './events.ts';
import { Markdown } from './markdown.tsx';
import { Badge, Empty, Folded, InvocationLink, Json, Time } from './ui.tsx';

type Answers = Map<string, unknown>;
/** What is shown in one row: an event, or text that is being spoken. */
type Row = Item | { author: string; text: string };

/** The rows of the events: an answer of a tool is folded into its call. */
function toRows(items: Item[]): { rows: Item[]; answers: Answers } {
  const answers: Answers = new Map();
  const calls = new Set<string>();
  for (const { event } of items) {
    const asked = event.actions?.requestedToolConfirmations ?? {};
    for (const { functionCall, functionResponse } of partsOf(event)) {
      if (functionCall?.id) calls.add(functionCall.id);
      // What stands in for the answer of a call that a person has to confirm first is none.
      if (functionResponse?.id && !Object.hasOwn(asked, functionResponse.id))
        answers.set(functionResponse.id, functionResponse.response);
    }
  }
  const isFolded = ({ event }: Item) => {
    const parts = partsOf(event);
    // A file that was saved is shown.
    if (Object.keys(event.actions?.artifactDelta ?? {}).length > 0) return false;
    return parts.length > 0 && parts.every(({ functionResponse }) => calls.has(functionResponse?.id ?? ''));
  };
  return { rows: items.filter((item) => !isFolded(item)), answers };
}

interface ConversationProps extends Pick<SessionEvents, 'items' | 'open'> {
  name: SessionName;
  goTo: number | undefined;
  isLive: boolean;
  /** What can be done about an event; the same function each time. */
  toActions?: (item: Item) => ReactNode;
}

/** A session as a conversation; only what is seen is in the page. */
export function Conversation(props: ConversationProps) {
  const { items, open, name, goTo, isLive, toActions } = props;
  const { rows: whole, answers } = useMemo(() => toRows(items), [items]);
  const rows: Row[] = useMemo(
    () => (isLive ? [...whole, ...[...open].map(([author, text]) => ({ author, text }))] : whole),
    [whole, open, isLive],
  );
  const place = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(goTo === undefined);
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => place.current,
    estimateSize: () => 96,
    overscan: 3,
    getItemKey: (index) => keyOf(rows[index] as Row),
    useFlushSync: false,
  });
  const goToIndex = whole.findIndex(({ sequence }) => sequence >= (goTo ?? Infinity));
  useEffect(() => {
    if (goToIndex >= 0) virtualizer.scrollToIndex(goToIndex, { align: 'start' });
  }, [goToIndex, virtualizer]);
  const height = virtualizer.scrollRect?.height;
  useEffect(() => {
    if (isLive && isAtEnd.current && rows.length > 0) virtualizer.scrollToIndex(rows.length - 1, { align: 'end' });
  }, [rows, height, isLive, virtualizer]);
  if (rows.length === 0) return <Empty>No event yet. What comes is shown at once.</Empty>;
  const noteEnd = () => {
    const { scrollTop = 0, clientHeight = 0, scrollHeight = 0 } = place.current ?? {};
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 80;
  };
  return (
    <div className="conversation" ref={place} onScroll={noteEnd} tabIndex={0} role="log" aria-label="Conversation">
      <div className="canvas" style={{ height: virtualizer.getTotalSize() }}>
        {virtualizer.getVirtualItems().map(({ key, index, start }) => (
          <div
            key={key}
            data-index={index}
            ref={virtualizer.measureElement}
            className="row"
            style={{ transform: `translateY(${start}px)` }}
          >
            <OneRow
              row={rows[index] as Row}
              answers={answers}
              name={name}
              isMarked={index === goToIndex}
              toActions={toActions}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

const keyOf = (row: Row) => ('sequence' in row ? row.sequence : `open ${row.author}`);

interface RowProps extends Pick<ConversationProps, 'name' | 'toActions'> {
  row: Row;
  answers: Answers;
  isMarked: boolean;
}

const OneRow = memo(({ row, answers, name, isMarked, toActions }: RowProps) => {
  if (!('sequence' in row))
    return (
      <article className="event model live" aria-busy="true">
        <h3>{row.author} speaks</h3>
        <Markdown text={row.text} />
      </article>
    );
  const { sequence, event } = row;
  const result = resultOf(event);
  const isUser = event.author === 'user' && !result;
  const { errorCode, errorMessage, interrupted, usageMetadata } = event;
  const delta = event.actions?.stateDelta ?? {};
  return (
    <article className={`event ${isUser ? 'user' : 'model'} ${isMarked ? 'marked' : ''}`}>
      <h3>
        {result ? <ResultOf name={name} {...result} /> : (event.author ?? 'nobody')}
        <span className="hint">
          <Link to="." search={(before: object) => ({ ...before, event: sequence })}>
            #{sequence}
          </Link>{' '}
          <Time at={event.timestamp ?? undefined} exact />
          {usageMetadata?.totalTokenCount ? ` · ${usageMetadata.totalTokenCount} tokens` : ''}
        </span>
        {isSteer(event) && <Taken name={name} by={event.invocationId ?? ''} />}
        {toActions?.(row)}
      </h3>
      <Parts event={event} isUser={isUser} answers={answers} name={name} />
      {(errorCode || errorMessage) && (
        <p className="problem">
          {errorCode}: {errorMessage}
        </p>
      )}
      {interrupted && <Badge tone="bad">interrupted</Badge>}
      {Object.keys(delta).length > 0 && <Folded label={`State: ${Object.keys(delta).join(', ')}`} value={delta} />}
      {Object.entries(event.actions?.artifactDelta ?? {}).map(([file, version]) => (
        <Artifact key={file} name={name} file={file} version={Number(version)} />
      ))}
      <Folded label="Raw event" value={event} />
    </article>
  );
});

/** Says that a message was read by what ran, and leads there. */
const Taken = ({ name, by }: { name: SessionName; by: string }) => (
  <span className="hint">
    <InvocationLink name={name} id={by}>
      steered what ran
    </InvocationLink>
  </span>
);

interface PartsProps {
  event: Event;
  isUser: boolean;
  answers: Answers;
  name: SessionName;
}

function Parts({ event, isUser, answers, name }: PartsProps) {
  return partsOf(event).map((part, index) => {
    const { text, thought, functionCall, functionResponse, inlineData, fileData } = part;
    if (functionCall) {
      const isLong = event.longRunningToolIds?.includes(functionCall.id ?? '') === true;
      if (isLong && !answers.has(functionCall.id ?? '')) return <Waiting key={index} call={functionCall} name={name} />;
      return <Call key={index} call={functionCall} answers={answers} name={name} />;
    }
    if (functionResponse)
      return <Folded key={index} label={`Answer of ${functionResponse.name}`} value={functionResponse.response} />;
    if (inlineData) return <Inline key={index} {...inlineData} />;
    if (fileData)
      return (
        <p key={index} className="hint">
          [{fileData.mimeType}: {fileData.fileUri}]
        </p>
      );
    if (!text) return <Folded key={index} label="Part" value={part} />;
    if (thought) return <Folded key={index} label="Thought" value={text} />;
    return isUser ? (
      <p key={index} className="said">
        {text}
      </p>
    ) : (
      <Markdown key={index} text={text} />
    );
  });
}

/** An artifact that an event saved, read when it is opened. */
function Artifact({ name, file, version }: { name: SessionName; file: string; version: number }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Saved {file}, version {version}
      </summary>
      {isOpen && <Content name={name} artifact={file} version={version} />}
    </details>
  );
}

interface InlineData {
  data?: string | null;
  mimeType?: string | null;
  displayName?: string | null;
}

/** A file within a message: in either alphabet of base64. */
const Inline = memo(({ data, mimeType, displayName }: InlineData) => {
  const type = mimeType ?? '';
  const blob = useMemo(() => {
    try {
      const text = atob((data ?? '').replaceAll('-', '+').replaceAll('_', '/'));
      return new Blob([Uint8Array.from(text, (character) => character.charCodeAt(0))]);
    } catch {
      return undefined;
    }
  }, [data]);
  if (!blob) return <p className="hint">[{type}: its bytes cannot be read]</p>;
  return (
    <figure className="file">
      <figcaption className="hint">
        {displayName ?? 'File'}, {type}
      </figcaption>
      <Shown blob={blob} type={type} file={displayName ?? 'file'} />
    </figure>
  );
});

interface FunctionCall {
  id?: string | null;
  name?: string | null;
  args?: unknown;
}

/** A call that waits for a person, or for something else that will answer it. */
function Waiting({ call, name }: { call: FunctionCall; name: SessionName }) {
  const { app, user, session } = name;
  const query = useQuery({
    queryKey: ['asked', name],
    queryFn: () =>
      ask(api.GET('/tasks', { params: { query: { appName: app, ownerId: user, sessionId: session, state: 'open' } } })),
    refetchInterval: 3_000,
  });
  const task = query.data?.items.find(({ callId }) => callId === call.id);
  const { originalFunctionCall, toolConfirmation } = (call.args ?? {}) as {
    originalFunctionCall?: FunctionCall;
    toolConfirmation?: { hint?: string };
  };
  const about = originalFunctionCall ?? call;
  const isByItself = task?.kind === 'sleep' || task?.kind === 'signal';
  return (
    <section className="asks" aria-label="Waits">
      <Badge tone="busy">{isByItself ? `waits for a ${task.kind}` : 'waits for an answer'}</Badge>
      <Markdown text={task?.form.hint ?? toolConfirmation?.hint ?? ''} />
      <Folded
        label={
          <code>
            {about.name}({short(about.args)})
          </code>
        }
        value={about.args}
      />
      {task && !isByItself && (
        <Link to="/tasks/$taskId" params={{ taskId: task.id }}>
          Answer it
        </Link>
      )}
    </section>
  );
}

/** A call of a tool, with its answer folded in. */
function Call({ call, answers, name }: { call: FunctionCall; answers: Answers; name: SessionName }) {
  const [isOpen, setOpen] = useState(false);
  const answer = answers.get(call.id ?? '');
  const isAnswered = answers.has(call.id ?? '');
  const isError = typeof answer === 'object' && answer !== null && 'error' in answer;
  return (
    <details className="call" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <code>
          {call.name}({short(call.args)})
        </code>{' '}
        {isAnswered ? (
          <>
            → <code className={isError ? 'bad' : ''}>{short(answer)}</code>
          </>
        ) : (
          <Badge tone="busy">no answer yet</Badge>
        )}
      </summary>
      <h4>Arguments</h4>
      <Json value={call.args} />
      {isAnswered && (
        <>
          <h4>Answer</h4>
          <Json value={answer} />
        </>
      )}
      {isOpen && <ChildLink name={name} callId={call.id} />}
    </details>
  );
}

function short(value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
