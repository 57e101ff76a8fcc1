import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { Button } from 'react-aria-components';
import { api, ApiError, ask, type Schemas } from './api.ts';
import { useScope, useViewer } from './context.tsx';
import { MakeCronjob } from './create.tsx';
import { formatCount, formatInterval, formatMoment } from './format.ts';
import { AuditList, Keys, Service, useServiceState } from './service.tsx';
import { Ask, Badge, Empty, Folded, ForUser, Loaded, Problem, SwitchedOff, Table, Time } from './ui.tsx';

const route = getRouteApi('/operations');
type Cronjob = Schemas['Cronjob'];

/** How the service is, and what it does by itself. */
export function OperationsPage() {
  const { settings } = useViewer();
  const { user } = useScope();
  const { cronjobs, webhooks } = settings.features;
  // What is above is there first, because a press is lost if its button moves.
  const { isFetched } = useServiceState();
  return (
    <>
      <h1>Operations</h1>
      <Service />
      {isFetched && (
        <>
          <h2>Cronjobs</h2>
          {cronjobs ? (
            <>
              <Cronjobs user={user} />
              <MakeCronjob />
            </>
          ) : (
            <SwitchedOff what="Cronjobs" setting="CRONJOBS" />
          )}
          <h2>Webhooks</h2>
          {webhooks ? (
            <ForUser>{(_app, owner) => <Webhooks user={owner} />}</ForUser>
          ) : (
            <SwitchedOff what="Webhooks" setting="WEBHOOKS" />
          )}
          <h2>Audit</h2>
          <AuditList />
          <h2>Keys</h2>
          <Keys />
        </>
      )}
    </>
  );
}

/** The cronjobs of all users where the scope allows it, else those of one. */
function useCronjobs(user: string) {
  return useQuery({
    queryKey: ['cronjobs', user],
    queryFn: async () => {
      try {
        const { items } = await ask(api.GET('/cronjobs', { params: { query: { limit: 100 } } }));
        return { items, of: 'all users' };
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 403 || user === '') throw error;
        const { items } = await ask(api.GET('/harness/cronjobs', { params: { query: { ownerId: user, limit: 100 } } }));
        return { items, of: user };
      }
    },
    refetchInterval: 10_000,
  });
}

function Cronjobs({ user }: { user: string }) {
  const { job } = route.useSearch();
  const query = useCronjobs(user);
  return (
    <Loaded query={query}>
      {({ items, of }) =>
        items.length === 0 ? (
          <Empty>There is no cronjob of {of}.</Empty>
        ) : (
          <>
            <p className="hint">Of {of}. A run that was asked for with “Run now” is not a scheduled one.</p>
            <Table
              label="Cronjobs"
              head={['Cronjob', 'Owner', 'Schedule', 'Next', 'Last run', 'Scheduled runs', 'Failed in a row', '']}
            >
              {items.map((each) => (
                <tr key={each.jobId}>
                  <td>
                    <Link to="/operations" search={(before) => ({ ...before, job: each.jobId })}>
                      {each.name ?? each.jobId}
                    </Link>
                    <div className="hint">{each.appName}</div>
                  </td>
                  <td>{each.ownerId}</td>
                  <td>{scheduleText(each)}</td>
                  <td>{each.enabled ? <Time at={each.nextRunAt} age /> : <Off job={each} />}</td>
                  <td>{each.latestRun ? <Badge>{each.latestRun.status}</Badge> : '–'}</td>
                  <td className="number">{formatCount(each.runCount)}</td>
                  <td className="number">{formatCount(each.failureCount)}</td>
                  <td>
                    <CronjobActions job={each} />
                  </td>
                </tr>
              ))}
            </Table>
            {job !== undefined && <Runs job={job} owner={items.find(({ jobId }) => jobId === job)} />}
          </>
        )
      }
    </Loaded>
  );
}

/** Somebody switched it off, or the service did, for a reason. */
const Off = ({ job: { disabledReason, failureCount } }: { job: Cronjob }) =>
  disabledReason === undefined ? (
    <Badge>off</Badge>
  ) : (
    <span className={failureCount > 0 ? 'bad' : ''}>{disabledReason}</span>
  );

const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** A schedule in words. */
function scheduleText({ schedule }: Cronjob): string {
  if (!schedule) return '–';
  const { timezone = 'UTC' } = schedule;
  switch (schedule.type) {
    case 'once':
      return `once, ${formatMoment(schedule.onceAt)}`;
    case 'interval':
      return `every ${formatInterval(schedule.intervalSeconds)}`;
    case 'daily':
      return `daily at ${schedule.time}, ${timezone}`;
    case 'weekly': {
      const days = schedule.weekdays ?? [schedule.weekday ?? 0];
      return `each ${days.map((day) => WEEKDAYS[day]).join(', ')} at ${schedule.time}, ${timezone}`;
    }
    case 'monthly':
      return `each month on day ${schedule.monthDays.join(', ')} at ${schedule.time}, ${timezone}`;
    default:
      return `${schedule.type} ${schedule.cron}, ${timezone}`;
  }
}

function CronjobActions({ job }: { job: Cronjob }) {
  const queries = useQueryClient();
  const params = { path: { job_id: job.jobId } };
  const act = useMutation({
    mutationFn: (enabled: boolean) =>
      ask(
        enabled
          ? api.POST('/harness/cronjobs/{job_id}/disable', { params })
          : api.POST('/harness/cronjobs/{job_id}/enable', { params }),
      ),
    onSettled: () => queries.invalidateQueries(),
  });
  const run = async () => {
    await ask(api.POST('/harness/cronjobs/{job_id}/run', { params }));
    await queries.invalidateQueries();
  };
  return (
    <div className="actions">
      <Button isDisabled={act.isPending} onPress={() => act.mutate(job.enabled)}>
        {job.enabled ? 'Switch off' : 'Switch on'}
      </Button>
      <Ask label="Run now" title={`Run ${job.name ?? job.jobId} now?`} action="Run" run={run} />
      {act.error && <Problem error={act.error} />}
    </div>
  );
}

function Runs({ job, owner }: { job: string; owner: Cronjob | undefined }) {
  const query = useQuery({
    queryKey: ['cronjob-runs', job],
    queryFn: () =>
      ask(api.GET('/harness/cronjobs/{job_id}/runs', { params: { path: { job_id: job }, query: { limit: 50 } } })),
    refetchInterval: 5_000,
  });
  return (
    <>
      <h3>Runs of {owner?.name ?? job}</h3>
      <Loaded query={query}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>It has not run yet.</Empty>
          ) : (
            <Table label="Runs" head={['Due', 'Status', 'Attempt', 'Ended', 'Session', 'Output or error']}>
              {items.map((run) => (
                <tr key={run.runId}>
                  <td>
                    <Time at={run.scheduledAt} />
                  </td>
                  <td>
                    <Badge>{run.status}</Badge>
                  </td>
                  <td className="number">{run.attempt}</td>
                  <td>
                    <Time at={run.finishedAt} age />
                  </td>
                  <td>
                    {run.sessionId && owner ? (
                      <Link
                        to="/sessions/$appName/$userId/$sessionId"
                        params={{ appName: owner.appName, userId: run.ownerId, sessionId: run.sessionId }}
                      >
                        {run.sessionId}
                      </Link>
                    ) : (
                      '–'
                    )}
                  </td>
                  <td>{run.error?.message ?? run.output ?? ''}</td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
    </>
  );
}

function Webhooks({ user }: { user: string }) {
  const { hook } = route.useSearch();
  const query = useQuery({
    queryKey: ['webhooks', user],
    queryFn: () => ask(api.GET('/harness/webhooks', { params: { query: { ownerId: user } } })),
  });
  return (
    <Loaded query={query}>
      {({ items }) =>
        items.length === 0 ? (
          <Empty>There is no webhook of {user}.</Empty>
        ) : (
          <>
            <Table label="Webhooks" head={['Address', 'Application', 'Since']}>
              {items.map((each) => (
                <tr key={each.webhookId}>
                  <td>
                    <Link to="/operations" search={(before) => ({ ...before, hook: each.webhookId })}>
                      {each.url}
                    </Link>
                  </td>
                  <td>{each.appName}</td>
                  <td>
                    <Time at={each.createdAt} />
                  </td>
                </tr>
              ))}
            </Table>
            {hook !== undefined && <Deliveries hook={hook} />}
          </>
        )
      }
    </Loaded>
  );
}

function Deliveries({ hook }: { hook: string }) {
  const { failed } = route.useSearch();
  const navigate = route.useNavigate();
  const queries = useQueryClient();
  const status = failed ? ('failed' as const) : undefined;
  const query = useQuery({
    queryKey: ['deliveries', hook, status],
    queryFn: () =>
      ask(
        api.GET('/harness/webhooks/{webhook_id}/deliveries', {
          params: { path: { webhook_id: hook }, query: { limit: 50, status } },
        }),
      ),
    refetchInterval: 5_000,
  });
  const again = useMutation({
    mutationFn: (delivery: string) =>
      ask(
        api.POST('/harness/webhooks/{webhook_id}/deliveries/{delivery_id}/replay', {
          params: { path: { webhook_id: hook, delivery_id: delivery } },
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: ['deliveries', hook] }),
  });
  return (
    <>
      <h3>Deliveries</h3>
      <label className="check">
        <input
          type="checkbox"
          checked={status !== undefined}
          onChange={({ target }) =>
            void navigate({ search: (before) => ({ ...before, failed: target.checked ? 'only' : undefined }) })
          }
        />
        Only failed ones
      </label>
      {again.error && <Problem error={again.error} />}
      <Loaded query={query}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>{status ? 'None failed.' : 'Nothing was sent yet.'}</Empty>
          ) : (
            <Table label="Deliveries" head={['Delivery', 'Status', 'Attempt', 'Since', 'Last answer', '']}>
              {items.map((each) => (
                <tr key={each.deliveryId}>
                  <td>
                    <Folded label={<code>{each.deliveryId}</code>} value={each} />
                  </td>
                  <td>
                    <Badge>{each.status}</Badge>
                  </td>
                  <td className="number">{each.attempt}</td>
                  <td>
                    <Time at={each.createdAt} age />
                  </td>
                  <td>{answerText(each)}</td>
                  <td>
                    <Button isDisabled={again.isPending} onPress={() => again.mutate(each.deliveryId)}>
                      Send again
                    </Button>
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
    </>
  );
}

function answerText({ answers }: Schemas['WebhookDelivery']): string {
  const last = answers.at(-1);
  return last === undefined ? '–' : (last.error ?? `${last.status ?? ''} ${last.body ?? ''}`.slice(0, 200));
}
