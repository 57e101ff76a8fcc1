import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { createContext, type CSSProperties, use, useEffect, useMemo, useState } from 'react';
import { Button } from 'react-aria-components';
import { type ErrorAdvice, ERROR_CODES } from '../../src/core/error-codes.ts';
import { api, ask, askWhole, type Event, fetchBytes, inPath, type SessionName } from './api.ts';
import { useViewer } from './context.tsx';
import { CalledAgents, ChildLink } from './children.tsx';
import { partsOf } from './events.ts';
import { COST_UNIT, formatBytes, formatCost, formatCount, formatSeconds } from './format.ts';
import { costOf, type Invocation, pricesQuery } from './invocation-list.tsx';
import { Copy, JsonView, LongText } from './json-view.tsx';
import { Markdown } from './markdown.tsx';
import {
  flatten,
  type Price,
  type Scale,
  type Span,
  type Step,
  type Told,
  tokensOf,
  toScale,
  toTree,
  type Tree,
} from './steps.ts';
import { Badge, Empty, InvocationLink, Loading, Problem, Time } from './ui.tsx';

/** Events of a page, and the pages that are read before somebody asks for more: 1,000 steps with tools, or 5 MB. */
const PAGE = 500;
const PAGES = 5;
const POLL_MS = 1_500;
/** Rows of one agent, and failures, that are in the page at first. */
const ROWS = 100;
const FAILURES = 20;
/** A longer text is not read as Markdown. */
const MAX_MARKDOWN = 30_000;

interface Loaded {
  pages: Event[][];
  /** The cursor of the last page, and whether more follow that were not asked for. */
  hasMore: boolean;
  isComplete: boolean;
  /** When they were read, Unix seconds: up to then is drawn what goes on. */
  time: number;
  error: Error | undefined;
}

const NOTHING: Loaded = { pages: [], hasMore: false, isComplete: false, time: 0, error: undefined };

/** The events of an invocation, page after page; the last page again while it runs. */
function useInvocationEvents(name: SessionName, invocationId: string, status: string) {
  const isRunning = status === 'running' || status === 'queued';
  const [most, setMost] = useState(PAGES);
  const [state, setState] = useState<Loaded>(NOTHING);
  useEffect(() => {
    let isLeft = false;
    let timer = 0;
    const pages: Event[][] = [];
    let cursor: string | undefined;
    const read = async () => {
      for (;;) {
        const query = { invocationId, limit: PAGE, ...(cursor !== undefined && { afterSequence: Number(cursor) }) };
        const path = '/apps/{app_name}/users/{user_id}/sessions/{session_id}/events';
        const page = await askWhole(api.GET(path, { params: { path: inPath(name), query } }));
        if (isLeft) return;
        const isLast = page.cursor === undefined || page.data.length === 0;
        const all = [...pages, page.data];
        if (isLast || all.length >= most) {
          setState({ pages: all, hasMore: !isLast, isComplete: true, time: Date.now() / 1000, error: undefined });
          if (isRunning && isLast) timer = window.setTimeout(start, POLL_MS);
          return;
        }
        pages.push(page.data);
        cursor = page.cursor;
        setState({ pages: [...pages], hasMore: true, isComplete: false, time: Date.now() / 1000, error: undefined });
      }
    };
    const start = () => {
      read().catch((error: Error) => {
        if (!isLeft) setState((before) => ({ ...before, error }));
      });
    };
    start();
    return () => {
      isLeft = true;
      clearTimeout(timer);
    };
  }, [name, invocationId, status, isRunning, most]);
  const events = useMemo(() => state.pages.flat(), [state.pages]);
  return { ...state, events, readMore: () => setMost(most + PAGES) };
}

/** Spans are stored where the development UI is served: exact times, whole requests, agents that are called as tools. */
function useSpans(name: SessionName, { id, endTime, status }: Invocation): Span[] {
  const { settings } = useViewer();
  const path = `/dev/apps/${encodeURIComponent(name.app)}/debug/trace/session/${encodeURIComponent(name.session)}`;
  const { data } = useQuery({
    queryKey: ['trace', path, id, endTime],
    queryFn: async () => JSON.parse(await (await fetchBytes(path)).text()) as Span[],
    enabled: settings.features.devUi && status !== 'running' && status !== 'queued',
    // They are stored a moment after the end.
    refetchInterval: ({ state }) => (state.dataUpdateCount < 2 ? 1_000 : false),
    retry: false,
  });
  return useMemo(
    () => (data ?? []).filter(({ attributes }) => attributes['gcp.vertex.agent.invocation_id'] === id),
    [data, id],
  );
}

interface View {
  name: SessionName;
  scale: Scale;
  end: number;
  prices: Price[];
  /** The open tasks of the invocation, by the id of the call that waits. */
  tasks: Map<string, string>;
  /** The step to open, and all that are above it. */
  chosen: { key: string; path: Set<string>; count: number } | undefined;
}

const ViewContext = createContext<View | undefined>(undefined);

function useView(): View {
  const view = use(ViewContext);
  if (!view) throw new Error('no view');
  return view;
}

/** A message that another invocation took: where it is, and what answers it. */
export const Steered = ({ name, into }: { name: SessionName; into: string }) => (
  <section className="card" aria-label="Steered">
    <p>
      Its message did not begin a turn of its own: invocation{' '}
      <InvocationLink name={name} id={into}>
        {into}
      </InvocationLink>{' '}
      ran, and took it. It is a step there, and is answered there.
    </p>
  </section>
);

/** An invocation: question and answer, and below them what it did as a tree, on one axis of time. */
export function InvocationTree({ name, invocation }: { name: SessionName; invocation: Invocation }) {
  const { id, status, endTime } = invocation;
  const { events, pages, hasMore, isComplete, time, error, readMore } = useInvocationEvents(name, id, status);
  const spans = useSpans(name, invocation);
  const isRunning = status === 'running' || status === 'queued';
  const isOver = !isRunning && status !== 'paused';
  const tree = useMemo(
    () => toTree(events, spans, { isOver, isRunning: isRunning && !hasMore, endTime, now: time }),
    [events, spans, isOver, isRunning, endTime, hasMore, time],
  );
  if (error && pages.length === 0) return <Problem error={error} />;
  if (!isComplete && pages.length === 0) return <Loading />;
  return (
    <>
      <Talk name={name} id={id} tree={tree} events={events} status={status} />
      <h2>What it did</h2>
      {error && <Problem error={error} />}
      {tree.steps.length === 0 ? (
        <Empty>No step yet.</Empty>
      ) : (
        <Steps name={name} invocation={invocation} tree={tree} hasTrace={spans.length > 0} />
      )}
      <CalledAgents name={name} invocation={invocation} />
      <Runs spans={spans} />
      {hasMore && (
        <div className="actions">
          <span className="hint">The first {formatCount(events.length)} events are shown.</span>
          <Button onPress={readMore} isDisabled={!isComplete}>
            Read more events
          </Button>
        </div>
      )}
    </>
  );
}

const REASON = 'agent_runtime.link.reason';
const WHY: Record<string, string> = {
  sleep: 'it slept',
  signal: 'a signal came',
  confirmation: 'a call was allowed or rejected',
  effect: 'a call was settled',
  question: 'a question was answered',
  call: 'a call was answered from elsewhere',
  child: 'an agent that it had called ended',
  answer: 'its client answered',
  budget: 'its budget allowed more',
  hand_over: 'its process stopped',
  take_over: 'its process died',
};

/** The runs of an invocation that waited or went on in another process. Each is a trace, linked to the one before. */
function Runs({ spans }: { spans: Span[] }) {
  const runs = spans
    .filter(({ name }) => name === 'invocation')
    // The call that made it is linked on the page of its session.
    .map((run) => ({ ...run, links: run.links.filter(({ attributes }) => attributes[REASON] !== 'parent') }));
  if (runs.length < 2 && runs.every(({ links }) => links.length === 0)) return null;
  const place = (id: string) => runs.findIndex(({ span_id: own }) => own === id) + 1;
  return (
    <section aria-label="Runs">
      <h2>Runs</h2>
      <ol>
        {runs.map(({ span_id: id, trace_id: trace, start_time: start, end_time: end, links }) => (
          <li key={id}>
            <Time at={start / 1e9} exact /> for {formatSeconds((end - start) / 1e9)}
            {links.map(({ span_id: earlier, trace_id: from, attributes }) => {
              const reason = String(attributes[REASON]);
              const before = place(earlier) > 0 ? `run ${place(earlier)}` : `trace ${from}, whose end is not kept`;
              return <span key={earlier}>{`, after ${WHY[reason] ?? reason}; goes on from ${before}`}</span>;
            })}
            , trace <code>{trace}</code> <Copy value={trace} what="the id of the trace" />
          </li>
        ))}
      </ol>
    </section>
  );
}

interface TalkProps {
  name: SessionName;
  id: string;
  tree: Tree;
  events: Event[];
  status: string;
}

/** What was asked and answered. */
function Talk({ name, id, tree: { question, answer }, events, status }: TalkProps) {
  const saved = useMemo(() => {
    const versions = new Map<string, number>();
    for (const { actions } of events)
      for (const [file, version] of Object.entries(actions?.artifactDelta ?? {})) versions.set(file, Number(version));
    return [...versions];
  }, [events]);
  return (
    <div className="exchange">
      <section aria-label="Question">
        <h2>Question</h2>
        {question.length === 0 && <NoQuestion name={name} id={id} status={status} />}
        {question.map((event, index) => (
          <Said key={event.id ?? index} event={event} />
        ))}
      </section>
      <section aria-label="Answer">
        <h2>Answer</h2>
        {answer ? <Said event={answer} /> : <p className="empty">{NO_ANSWER[status] ?? 'There is none.'}</p>}
        {saved.length > 0 && (
          <p className="chips">
            {saved.map(([file, version]) => (
              <Link
                key={file}
                className="chip"
                to="/sessions/$appName/$userId/$sessionId"
                params={{ appName: name.app, userId: name.user, sessionId: name.session }}
                search={{ tab: 'artifacts', artifact: file, version }}
              >
                <bdi>{file}</bdi> (saved, version {version})
              </Link>
            ))}
          </p>
        )}
      </section>
    </div>
  );
}

/** Why there is no question: a message that was sent is stored when its invocation begins to work. */
function NoQuestion({ name: { app, user, session }, id, status }: Pick<TalkProps, 'name' | 'id' | 'status'>) {
  const { data, isPending } = useQuery({
    queryKey: ['first-text', app, user, session, id, status],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/invocations', {
          params: { path: { app_name: app }, query: { userId: user, sessionId: session, text: id, limit: 1 } },
        }),
      ),
    retry: false,
  });
  if (isPending) return <Loading />;
  const found = data?.items.find((each) => each.id === id);
  if (found?.firstText)
    return (
      <>
        <p className="empty">Its message is not stored in the session. It began:</p>
        <p className="said" dir="auto">
          {found.firstText}
        </p>
      </>
    );
  if (status === 'queued') return <p className="empty">Its message is stored when its turn comes.</p>;
  return <p className="empty">No message of it is stored: it began without one, or before one could be stored.</p>;
}

const NO_ANSWER: Record<string, string> = {
  queued: 'It waits for its session.',
  running: 'It is being made.',
  paused: 'It waits: the step below that goes on says for what.',
  failed: 'There is none: it failed.',
  cancelled: 'There is none: it was cancelled.',
  interrupted: 'There is none: it was interrupted.',
};

function Said({ event }: { event: Event }) {
  const parts = partsOf(event);
  const texts = parts.flatMap(({ text, thought }) => (text && !thought ? [text] : []));
  return (
    <>
      {texts.map((text, index) => (
        <Prose key={index} text={text} />
      ))}
      <p className="chips">
        {parts.map(({ inlineData, fileData }, index) =>
          inlineData ? (
            <FileChip key={index} {...inlineData} />
          ) : fileData ? (
            <span key={index} className="chip">
              <bdi>{fileData.displayName ?? fileData.fileUri}</bdi> {fileData.mimeType}
            </span>
          ) : null,
        )}
      </p>
    </>
  );
}

interface InlineFile {
  data?: string | null;
  mimeType?: string | null;
  displayName?: string | null;
}

/** A file of a message, to be downloaded: it is never opened as a page of this origin. */
function FileChip({ data, mimeType, displayName }: InlineFile) {
  const save = () => {
    const text = atob((data ?? '').replaceAll('-', '+').replaceAll('_', '/'));
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
    const link = document.createElement('a');
    link.href = url;
    link.download = displayName ?? 'file';
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <Button className="chip" onPress={save}>
      <bdi>{displayName ?? 'File'}</bdi> {mimeType}, {formatBytes(Math.round((data?.length ?? 0) * 0.75))}
    </Button>
  );
}

/** Text of people and models in its box, as Markdown if it is not too long for that. */
function Prose({ text }: { text: string }) {
  return (
    <section className="prose" dir="auto" aria-label="Text" tabIndex={0}>
      {text.length > MAX_MARKDOWN ? (
        <p className="said">
          <LongText text={text} most={MAX_MARKDOWN} />
        </p>
      ) : (
        <Markdown text={text} />
      )}
    </section>
  );
}

interface StepsProps {
  name: SessionName;
  invocation: Invocation;
  tree: Tree;
  hasTrace: boolean;
}

function Steps({ name, invocation, tree, hasTrace }: StepsProps) {
  const prices = useQuery(pricesQuery);
  const tasks = useTasks(name, invocation);
  const [chosen, setChosen] = useState<View['chosen']>();
  const all = useMemo(() => flatten(tree.steps), [tree.steps]);
  const failed = useMemo(() => all.filter(({ reason }) => reason !== undefined), [all]);
  const scale = useMemo(() => toScale(tree.steps, tree.start, tree.end), [tree]);
  const view: View = useMemo(
    () => ({ name, scale, end: tree.end, prices: prices.data ?? [], tasks, chosen }),
    [name, scale, tree.end, prices.data, tasks, chosen],
  );
  const models = all.filter(({ kind, key }) => kind === 'model' && key !== 'now').length;
  const hidden = invocation.llmCalls - models;
  const hasTwins = all.some(
    ({ kind, start }, index) => kind === 'tool' && isTool(all[index + 1]) && all[index + 1]?.start === start,
  );
  return (
    <ViewContext value={view}>
      {failed.length > 0 && (
        <section className="failures" aria-label="What failed">
          <h3>
            {formatCount(failed.length)} {failed.length === 1 ? 'step' : 'steps'} failed
          </h3>
          <ul>
            {failed.slice(0, FAILURES).map((step) => (
              <li key={step.key}>
                <Button
                  onPress={() =>
                    setChosen({ key: step.key, path: pathTo(tree.steps, step.key), count: (chosen?.count ?? 0) + 1 })
                  }
                >
                  <bdi>{cut(step.name, 80)}</bdi>
                </Button>{' '}
                <bdi className="bad">{cut(step.reason ?? '', 300)}</bdi>
              </li>
            ))}
          </ul>
          {failed.length > FAILURES && <p className="hint">And {formatCount(failed.length - FAILURES)} more.</p>}
        </section>
      )}
      <section className="tree" aria-label="Steps">
        <Legend hasCuts={scale.cuts.length > 0} hasPrices={view.prices.length > 0} />
        <Axis scale={scale} />
        <Rows steps={tree.steps} depth={0} />
      </section>
      {hasTwins && !hasTrace && (
        <p className="hint">
          Tools that were called together are shown with the time until all had answered: the time of each is kept in
          traces only (DEV_UI).
        </p>
      )}
      {hidden > 0 && invocation.endTime !== undefined && (
        <p className="hint">
          {formatCount(hidden)} further model calls of it are not listed: agents that are called like tools work in
          sessions of their own, to which their calls lead.
        </p>
      )}
    </ViewContext>
  );
}

const isTool = (step: Step | undefined) => step?.kind === 'tool';

/** The keys of the steps above a step, and its own. */
function pathTo(steps: Step[], key: string): Set<string> {
  for (const step of steps) {
    if (step.key === key) return new Set([key]);
    const path = pathTo(step.children, key);
    if (path.size > 0) return path.add(step.key);
  }
  return new Set();
}

/** What the invocation waits for, as tasks that can be opened. */
function useTasks(name: SessionName, { id, status }: Invocation): Map<string, string> {
  const { data } = useQuery({
    queryKey: ['tasks-of', name, id],
    queryFn: () =>
      ask(
        api.GET('/tasks', {
          params: { query: { appName: name.app, ownerId: name.user, sessionId: name.session, limit: 100 } },
        }),
      ),
    enabled: status === 'paused',
    retry: false,
  });
  return useMemo(
    () =>
      new Map(
        (data?.items ?? []).flatMap((task) =>
          task.invocationId === id && task.callId !== undefined ? [[task.callId, task.id] as const] : [],
        ),
      ),
    [data, id],
  );
}

const Legend = ({ hasCuts, hasPrices }: { hasCuts: boolean; hasPrices: boolean }) => (
  <p className="tree-legend">
    {(['agent', 'model', 'tool', 'wait'] as const).map((kind) => (
      <span key={kind} className={`key ${kind}`}>
        {LEGEND[kind]}
      </span>
    ))}
    <span className="key failed">failed</span>
    <span className="hint">
      Time since the start{hasCuts ? ', long waits are drawn shorter and not counted on the axis' : ''}.{' '}
      {hasPrices ? `Cost: ${COST_UNIT}.` : ''}
    </span>
  </p>
);
const LEGEND = { agent: 'agent, all below it', model: 'model call', tool: 'tool', wait: 'wait' };

const at = (place: number): CSSProperties => ({ insetInlineStart: `${place}%` });

/** The label of a tick beyond it, in percent, is written before it: after it there is no room. */
const LAST_PLACE = 85;

function Axis({ scale }: { scale: Scale }) {
  return (
    <div className="step-row axis" aria-hidden="true">
      <span>Step</span>
      <span className="track">
        {scale.ticks.map(({ place, seconds }) => (
          <span
            key={seconds}
            className={`tick ${place > LAST_PLACE ? 'last' : ''}`}
            style={place > LAST_PLACE ? { insetInlineEnd: `${100 - place}%` } : at(place)}
          >
            {seconds === 0 ? '0' : formatSeconds(seconds)}
          </span>
        ))}
        {scale.cuts.map(({ from, to, seconds }) => (
          <span key={from} className="cut" style={{ ...at(from), width: `${to - from}%` }}>
            {formatSeconds(seconds)}
          </span>
        ))}
      </span>
      <span className="number">Took</span>
      <span className="number">Tokens</span>
      <span className="number">Cost</span>
    </div>
  );
}

/** The steps of one agent; of many the first, and then as many again as somebody wants. */
function Rows({ steps, depth }: { steps: Step[]; depth: number }) {
  const { chosen } = useView();
  const [most, setMost] = useState(ROWS);
  const wanted = chosen ? steps.findIndex(({ key }) => chosen.path.has(key)) : -1;
  const shown = Math.max(most, wanted + 1);
  return (
    <ol className="steps">
      {steps.slice(0, shown).map((step) => (
        <Row key={step.key} step={step} depth={depth} />
      ))}
      {steps.length > shown && (
        <li className="actions">
          <Button onPress={() => setMost(shown + ROWS)}>
            Show {formatCount(Math.min(ROWS, steps.length - shown))} more of {formatCount(steps.length)} steps
          </Button>
          <Button onPress={() => setMost(steps.length)}>Show all</Button>
        </li>
      )}
    </ol>
  );
}

function Row({ step, depth }: { step: Step; depth: number }) {
  const { chosen } = useView();
  const { key, kind, name, reason, notes, broken, children } = step;
  const isAgent = kind === 'agent';
  const [isOpen, setOpen] = useState(isAgent);
  const [element, setElement] = useState<HTMLDetailsElement | null>(null);
  const isChosen = chosen?.key === key;
  const isAbove = chosen?.path.has(key) === true;
  const count = chosen?.count;
  useEffect(() => {
    if (!isAbove) return;
    setOpen(true);
    if (isChosen) {
      element?.scrollIntoView({ block: 'center' });
      element?.querySelector('summary')?.focus({ preventScroll: true });
    }
  }, [isAbove, isChosen, count, element]);
  const failures = isAgent ? flatten(children).filter((each) => each.reason !== undefined).length : 0;
  const warning = notes.find(({ isBad }) => isBad);
  return (
    <li style={{ '--depth': depth } as CSSProperties}>
      <details
        ref={setElement}
        open={isOpen}
        onToggle={(event) => setOpen(event.currentTarget.open)}
        className={`step ${kind} ${reason === undefined ? '' : 'failed'}`}
      >
        <summary>
          <span className="step-row">
            <span className="step-name">
              <Badge tone={reason === undefined ? `kind-${kind}` : 'bad'}>{kind}</Badge>
              <bdi>{cut(name, 120)}</bdi> {reason !== undefined && <strong className="bad">failed </strong>}
              {step.end === undefined && <Badge tone="busy">goes on</Badge>}
              {broken && (
                <Badge tone="" title={cut(broken.text, 400)}>
                  cache break: {cut(broken.part, 40)}
                </Badge>
              )}
              {failures > 0 && <span className="bad"> {formatCount(failures)} failed</span>}
            </span>
            <Bar step={step} />
            <Numbers step={step} />
          </span>
          {reason !== undefined && (
            <span className="step-reason bad">
              <bdi>{cut(reason, 400)}</bdi>
            </span>
          )}
          {reason === undefined && warning && (
            <span className="step-reason bad">
              <bdi>{cut(warning.text, 200)}</bdi>
            </span>
          )}
        </summary>
        {isOpen && !isAgent && <Opened step={step} />}
        {isOpen && isAgent && <Rows steps={children} depth={depth + 1} />}
      </details>
      {!isAgent && children.length > 0 && <Rows steps={children} depth={depth + 1} />}
    </li>
  );
}

const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most)}…` : text);

function Bar({ step: { kind, start, end, reason } }: { step: Step }) {
  const { scale, end: last } = useView();
  const from = scale.place(start);
  const width = Math.max(0.4, scale.place(end ?? last) - from);
  return (
    <span className="track" aria-hidden="true">
      {scale.ticks.map(({ place, seconds }) => (
        <span key={seconds} className="line" style={at(place)} />
      ))}
      <span
        className={`span ${kind} ${reason === undefined ? '' : 'failed'}`}
        style={{ ...at(Math.min(from, 99.6)), width: `${width}%` }}
      />
    </span>
  );
}

function Numbers({ step }: { step: Step }) {
  const { end: last, prices } = useView();
  const { input, cached, output } = useMemo(() => tokensOf(step), [step]);
  const cost = useMemo(() => {
    const used = flatten([step]).flatMap(({ use: each }) => each ?? []);
    return used.length > 0 && prices.length > 0 ? costOf(used, prices) : undefined;
  }, [step, prices]);
  const seconds = Math.max(0, (step.end ?? last) - step.start);
  const share = input > 0 ? Math.round((cached / input) * 100) : 0;
  return (
    <>
      <span className="number">{formatSeconds(seconds)}</span>
      <span className="number tokens">
        {input + output > 0 && (
          <>
            {formatCount(input)} in{cached > 0 && ` (${share} % cached)`}, {formatCount(output)} out
          </>
        )}
      </span>
      <span className="number">{cost === undefined ? '' : formatCost(cost)}</span>
    </>
  );
}

/** A step that was opened: what it got and gave, and how it is stored. */
function Opened({ step }: { step: Step }) {
  const { tasks, name } = useView();
  const { input, output, notes, reason, raw, kind, broken } = step;
  const [isRaw, setRaw] = useState(false);
  const callId = (raw as { id?: string } | undefined)?.id ?? '';
  const task = tasks.get(callId);
  return (
    <div className="step-panel">
      {reason !== undefined && (
        <p className="problem">
          <LongText text={reason} />
        </p>
      )}
      {notes.map(({ text, isBad }) => (
        <p key={text} className={isBad ? 'bad' : 'hint'}>
          <LongText text={text} />
        </p>
      ))}
      {broken && (
        <p className="hint">
          <LongText text={broken.text} />
        </p>
      )}
      {task !== undefined && (
        <p>
          <Link to="/tasks/$taskId" params={{ taskId: task }}>
            Answer it
          </Link>
        </p>
      )}
      {kind === 'message' && <Bringer id={(raw as Event).id ?? ''} />}
      {kind === 'tool' && <ChildLink name={name} callId={callId} />}
      <Side title={kind === 'model' ? 'Input: what is new since its last call' : 'Input'} told={input} />
      <Side title={kind === 'message' ? 'Message' : 'Output'} told={output} />
      {raw !== undefined && (
        <details onToggle={(event) => setRaw(event.currentTarget.open)}>
          <summary>As it is stored</summary>
          {isRaw && (
            <div className="told">
              <Copy value={raw} what="what is stored" />
              <JsonView value={raw} label="As it is stored" />
            </div>
          )}
        </details>
      )}
    </div>
  );
}

/** Leads to the invocation whose request brought a message that another one took. */
function Bringer({ id }: { id: string }) {
  const { name } = useView();
  return (
    <p>
      Read by the agent from its next step on.{' '}
      <InvocationLink name={name} id={id}>
        The request that brought it
      </InvocationLink>
    </p>
  );
}

function Side({ title, told }: { title: string; told: Told[] }) {
  if (told.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {told.map((each, index) => (
        <Value key={index} told={each} />
      ))}
    </section>
  );
}

/** A value as it reads best: text as Markdown, text that is JSON and all else folded. */
function Value({ told: { title, value } }: { told: Told }) {
  const shown = typeof value === 'string' ? (parseJson(value) ?? value) : value;
  return (
    <div className="told">
      <h4>
        <bdi>{cut(title, 120)}</bdi> <Copy value={value} what={cut(title, 40)} />
      </h4>
      {typeof shown === 'string' ? <Prose text={shown} /> : <JsonView value={shown} label={cut(title, 120)} />}
    </div>
  );
}

function parseJson(text: string): object | undefined {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as object;
  } catch {
    return undefined;
  }
}

/** Why an invocation did not succeed, and what to do. */
export function Failure({ error: { code, message } }: { error: { code: string; message: string } }) {
  const advice: Readonly<Record<string, ErrorAdvice>> = ERROR_CODES;
  const todo = Object.hasOwn(advice, code) ? advice[code]?.remedy : undefined;
  return (
    <section className="problem" aria-label="Error">
      <p>
        <code>{code}</code> <bdi>{message}</bdi>
      </p>
      {todo && <p>What to do: {todo}</p>}
    </section>
  );
}
