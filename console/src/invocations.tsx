import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { type ReactNode, useMemo } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, fetchBytes, inPath, type Schemas, type SessionName } from './api.ts';
import { useViewer } from './context.tsx';
import { partsOf, useEvents } from './events.ts';
import { formatCount, formatSeconds } from './format.ts';
import { Cost, isOpen, type Invocation, secondsOf } from './invocation-list.tsx';
import { Ask, Badge, Empty, Facts, Folded, Json, Loaded, Problem, Table, Time } from './ui.tsx';

const route = getRouteApi('/invocations/$appName/$userId/$sessionId/$invocationId');

/** Tool calls of which nobody knows whether they acted, to be settled by a person. */
export function Effects({ app, user, invocationId }: { app: string; user: string; invocationId?: string }) {
  const query = useQuery({
    queryKey: ['effects', app, user],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/tool-calls', {
          params: { path: { app_name: app, user_id: user }, query: { limit: 100, state: 'unknown' } },
        }),
      ),
    refetchInterval: 10_000,
  });
  return (
    <Loaded query={query}>
      {({ items }) => {
        const calls = items.filter((call) => invocationId === undefined || call.invocationId === invocationId);
        if (calls.length === 0) return <Empty>None: of every call it is known what became of it.</Empty>;
        return (
          <Table label="Uncertain tool calls" head={['Tool', 'Session', 'Effect', 'Since', 'Attempt', '']}>
            {calls.map((call) => (
              <tr key={call.operationId}>
                <td>
                  <code>{call.tool}</code>
                  <div className="hint">{call.callId}</div>
                </td>
                <td>{call.sessionId}</td>
                <td>{call.effect}</td>
                <td>
                  <Time at={call.updateTime} age />
                </td>
                <td className="number">{call.attempt}</td>
                <td>
                  <Settle call={call} app={app} user={user} />
                </td>
              </tr>
            ))}
          </Table>
        );
      }}
    </Loaded>
  );
}

const OUTCOMES = [
  ['done', 'It was done', 'The tool is not called again; the model is told that it was done.'],
  ['not_done', 'It was not done', 'The model is told so.'],
  ['run_again', 'Run it again', 'The tool is called once more.'],
] as const;

function Settle({ call, app, user }: { call: Schemas['ToolCall']; app: string; user: string }) {
  const queries = useQueryClient();
  const settle = async (outcome: (typeof OUTCOMES)[number][0]) => {
    await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/tool-calls/{call_id}/settle', {
        params: { path: { ...inPath({ app, user, session: call.sessionId }), call_id: call.callId } },
        body: { outcome },
      }),
    );
    await queries.invalidateQueries();
  };
  return (
    <div className="actions">
      {OUTCOMES.map(([outcome, label, meaning]) => (
        <Ask
          key={outcome}
          label={label}
          title={`${call.tool}: ${label.toLowerCase()}?`}
          action={label}
          run={() => settle(outcome)}
        >
          <p>{meaning}</p>
        </Ask>
      ))}
    </div>
  );
}

/** One invocation: what it did, when, and whether it would do so again. */
export function InvocationPage() {
  const { appName: app, userId: user, sessionId: session, invocationId } = route.useParams();
  const name = useMemo(() => ({ app, user, session }), [app, user, session]);
  const query = useQuery({
    queryKey: ['invocation', name, invocationId],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations/{invocation_id}', {
          params: { path: { ...inPath(name), invocation_id: invocationId } },
        }),
      ),
    refetchInterval: ({ state: { data } }) => (data && !isOpen(data) ? false : 1_000),
  });
  return (
    <>
      <p>
        <Link
          to="/sessions/$appName/$userId/$sessionId"
          params={{ appName: app, userId: user, sessionId: session }}
          search={{ tab: 'invocations' }}
        >
          Session {session}
        </Link>
      </p>
      <h1>Invocation {invocationId}</h1>
      <Loaded query={query}>{(invocation) => <About name={name} invocation={invocation} />}</Loaded>
      <h2>Timeline</h2>
      <Timeline name={name} invocationId={invocationId} />
      <h2>Uncertain tool calls</h2>
      <Effects app={app} user={user} invocationId={invocationId} />
    </>
  );
}

function About({ name, invocation }: { name: SessionName; invocation: Invocation }) {
  const { status, error, agentVersion } = invocation;
  const seconds = secondsOf(invocation);
  return (
    <>
      <Facts
        facts={[
          ['Status', <Badge key="status">{status}</Badge>],
          ['User', name.user],
          ['Requested', <Time key="requested" at={invocation.createTime} />],
          ['Took', seconds === undefined ? '–' : formatSeconds(seconds)],
          ['Model calls', formatCount(invocation.llmCalls)],
          ['Tool calls', formatCount(invocation.toolCalls)],
          ['Tokens in', formatCount(invocation.promptTokens)],
          ['Tokens out', formatCount(invocation.outputTokens)],
          ['Cost', <Cost key="cost" invocation={invocation} />],
          ['Version of the agent', agentVersion ? <code key="version">{agentVersion}</code> : '–'],
        ]}
      />
      {error && <Problem error={new Error(`${error.code}: ${error.message}`)} />}
      <div className="actions">{isOpen(invocation) && <Cancel name={name} id={invocation.id} />}</div>
      {!isOpen(invocation) && <Replay name={name} id={invocation.id} />}
    </>
  );
}

function Cancel({ name, id }: { name: SessionName; id: string }) {
  const queries = useQueryClient();
  const cancel = async () => {
    await ask(
      api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations/{invocation_id}/cancel', {
        params: { path: { ...inPath(name), invocation_id: id } },
      }),
    );
    await queries.invalidateQueries();
  };
  return (
    <Ask label="Cancel" title="Cancel this invocation?" action="Cancel it" run={cancel} isDangerous>
      <p>What it has stored stays. What a tool has done is not undone.</p>
    </Ask>
  );
}

function Replay({ name, id }: { name: SessionName; id: string }) {
  const replay = useMutation({
    mutationFn: () =>
      ask(
        api.POST('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations/{invocation_id}/replay', {
          params: { path: { ...inPath(name), invocation_id: id } },
          body: {},
        }),
      ),
  });
  const { data } = replay;
  return (
    <section aria-label="Replay">
      <Button isDisabled={replay.isPending} onPress={() => replay.mutate()}>
        Replay with the stored answers
      </Button>
      {replay.error && <Problem error={replay.error} />}
      {data && (
        <div className="card">
          <Badge>{data.status}</Badge> {formatCount(data.events)} events compared. {data.stopped}
          {data.difference && (
            <>
              <p>
                First difference: event {data.difference.sequence ?? data.difference.event},{' '}
                <code>{data.difference.path}</code>
              </p>
              <div className="split">
                <Json value={data.difference.before} />
                <Json value={data.difference.after} />
              </div>
            </>
          )}
          {data.notes.map((note) => (
            <p key={note} className="hint">
              {note}
            </p>
          ))}
        </div>
      )}
    </section>
  );
}

interface Span {
  key: string;
  label: ReactNode;
  isTool: boolean;
  start: number;
  end: number;
  details: unknown;
}

interface StoredSpan {
  name: string;
  span_id: string;
  start_time: number;
  end_time: number;
  attributes: Record<string, unknown>;
}

/** Model and tool calls over time: of its spans where traces are served (`DEV_UI`), else of the times of its events. */
function Timeline({ name, invocationId }: { name: SessionName; invocationId: string }) {
  const { settings } = useViewer();
  const { items, error } = useEvents(name);
  const hasTraces = settings.features.devUi;
  const path = `/dev/apps/${encodeURIComponent(name.app)}/debug/trace/session/${encodeURIComponent(name.session)}`;
  const traces = useQuery({
    queryKey: ['trace', path, items.length],
    queryFn: async () => JSON.parse(await (await fetchBytes(path)).text()) as StoredSpan[],
    enabled: hasTraces,
  });
  const events = useMemo(() => items.filter(({ event }) => event.invocationId === invocationId), [items, invocationId]);
  const spans = useMemo(() => {
    const ofTraces = toSpans(traces.data ?? [], invocationId);
    return ofTraces.length > 0 ? ofTraces : eventSpans(events);
  }, [traces.data, events, invocationId]);
  if (error) return <Problem error={error} />;
  if (spans.length === 0) return <Empty>No step yet.</Empty>;
  const first = Math.min(...spans.map(({ start }) => start));
  const whole = Math.max(0.001, Math.max(...spans.map(({ end }) => end)) - first);
  return (
    <div className="bars">
      {spans.map(({ key, label, isTool, start, end, details }) => (
        <div key={key} className={`bar ${isTool ? 'tool' : ''}`}>
          <Folded label={label} value={details} />
          <svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
            <rect
              x={Math.min(99.5, ((start - first) / whole) * 100)}
              width={Math.max(0.5, ((end - start) / whole) * 100)}
              height="1"
            />
          </svg>
          <span className="number">{formatSeconds(end - start)}</span>
        </div>
      ))}
    </div>
  );
}

const toSpans = (spans: StoredSpan[], invocationId: string): Span[] =>
  spans
    .filter(({ attributes }) => Object.values(attributes).includes(invocationId))
    .map((span) => ({
      key: span.span_id,
      label: span.name,
      isTool: span.name.startsWith('execute_tool'),
      start: span.start_time / 1e9,
      end: span.end_time / 1e9,
      details: span.attributes,
    }));

/** Each event ends what began with the one before it. */
function eventSpans(items: { sequence: number; event: Schemas['Event'] }[]): Span[] {
  return items.slice(1).flatMap(({ sequence, event }, index) => {
    const start = items[index]?.event.timestamp ?? 0;
    const parts = partsOf(event);
    const tools = parts.flatMap(({ functionResponse }) => functionResponse?.name ?? []);
    const label = `#${sequence} ${tools.length > 0 ? tools.join(', ') : (event.author ?? '')}`;
    const end = event.timestamp ?? start;
    return [{ key: String(sequence), label, isTool: tools.length > 0, start, end, details: event }];
  });
}
