import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, inPath, type Schemas, type SessionName } from './api.ts';
import { COST_UNIT, formatCost, formatCount, formatSeconds } from './format.ts';
import { isOpen, type Invocation, timesOf } from './invocation-list.tsx';
import { Failure, InvocationTree, Steered } from './invocation-tree.tsx';
import { Ask, Badge, Empty, Facts, Json, Loaded, Problem, Table, Time } from './ui.tsx';

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
      <Loaded query={query}>
        {(invocation) => (
          <>
            <About name={name} invocation={invocation} />
            {invocation.steeredInto === undefined ? (
              <>
                <InvocationTree key={invocation.id} name={name} invocation={invocation} />
                {!isOpen(invocation) && <Replay name={name} id={invocation.id} />}
              </>
            ) : (
              <Steered name={name} into={invocation.steeredInto} />
            )}
          </>
        )}
      </Loaded>
      <h2>Uncertain tool calls</h2>
      <Effects app={app} user={user} invocationId={invocationId} />
    </>
  );
}

function About({ name, invocation }: { name: SessionName; invocation: Invocation }) {
  const { status, error, agentVersion } = invocation;
  const { work, waiting } = timesOf(invocation);
  const { failedToolCalls = 0, toolCalls, cost } = invocation;
  return (
    <>
      <Facts
        facts={[
          ['Status', <Badge key="status">{status}</Badge>],
          ['User', name.user],
          ['Requested', <Time key="requested" at={invocation.createTime} />],
          [
            invocation.status === 'running' ? 'Since its request' : 'Worked',
            work === undefined ? '–' : formatSeconds(work),
          ],
          ['Waited', waiting === undefined ? '–' : formatSeconds(waiting)],
          ['Model calls', formatCount(invocation.llmCalls)],
          ['Tool calls', formatCount(toolCalls) + (failedToolCalls > 0 ? `, ${failedToolCalls} failed` : '')],
          ['Tokens in', formatCount(invocation.promptTokens)],
          ['Tokens out', formatCount(invocation.outputTokens)],
          [`Cost, ${COST_UNIT}`, cost === undefined ? '–' : formatCost(cost)],
          ['Version of the agent', agentVersion ? <code key="version">{agentVersion}</code> : '–'],
        ]}
      />
      {error && <Failure error={error} />}
      <div className="actions">{isOpen(invocation) && <Cancel name={name} id={invocation.id} />}</div>
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
