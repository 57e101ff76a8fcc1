import { useQueries } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, ask, inPath, type Schemas, type SessionName } from './api.ts';
import { formatCount, formatSeconds } from './format.ts';
import { Badge, Empty, Loading, Problem, Table, Time } from './ui.tsx';

export type Invocation = Schemas['Invocation'];

export const isOpen = ({ status }: Invocation) => /^(queued|running|paused)$/.test(status);

/** How long it took, or has taken until now. */
export const secondsOf = ({ startTime, endTime }: Invocation) =>
  startTime === undefined ? undefined : (endTime ?? Date.now() / 1000) - startTime;

/** The invocations of sessions, the newest first; with `only` those that are open. */
export function InvocationList({ names, only = false }: { names: SessionName[]; only?: boolean }) {
  const queries = useQueries({
    queries: names.map((name) => ({
      queryKey: ['invocations', name],
      queryFn: () =>
        ask(
          api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations', {
            params: { path: inPath(name), query: { limit: names.length === 1 ? 100 : 5 } },
          }),
        ),
      refetchInterval: 5_000,
    })),
  });
  const failed = queries.find(({ error }) => error);
  if (failed?.error) return <Problem error={failed.error} retry={() => void failed.refetch()} />;
  if (queries.some(({ isPending }) => isPending)) return <Loading />;
  const all = queries
    .flatMap(({ data = [] }) => data)
    .filter((each) => !only || isOpen(each))
    .sort((one, other) => other.createTime - one.createTime);
  if (all.length === 0) return <Empty>{only ? 'Nothing runs or waits.' : 'No invocation.'}</Empty>;
  return (
    <Table
      label="Invocations"
      head={['Invocation', 'Status', 'Requested', 'Took', 'Model calls', 'Tool calls', 'Tokens in', 'Tokens out']}
    >
      {all.map((each) => (
        <tr key={each.id}>
          <td>
            <Link
              to="/invocations/$appName/$userId/$sessionId/$invocationId"
              params={{
                appName: each.appName,
                userId: each.userId,
                sessionId: each.sessionId,
                invocationId: each.id,
              }}
            >
              {each.id}
            </Link>
            {names.length > 1 && <div className="hint">session {each.sessionId}</div>}
          </td>
          <td>
            <Badge>{each.status}</Badge>
          </td>
          <td>
            <Time at={each.createTime} age />
          </td>
          <td className="number">{toText(secondsOf(each), formatSeconds)}</td>
          <td className="number">{formatCount(each.llmCalls)}</td>
          <td className="number">{formatCount(each.toolCalls)}</td>
          <td className="number">{formatCount(each.promptTokens)}</td>
          <td className="number">{formatCount(each.outputTokens)}</td>
        </tr>
      ))}
    </Table>
  );
}

const toText = (value: number | undefined, format: (value: number) => string) =>
  value === undefined ? '–' : format(value);
