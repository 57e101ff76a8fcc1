import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import type { FormEvent } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, type Schemas } from './api.ts';
import { appsQuery, useViewer } from './context.tsx';
import type { paths } from './openapi.d.ts';
import { isPlain, SchemaForm } from './schema-form.tsx';
import { Badge, Empty, Facts, fieldsOf, Folded, Json, Loaded, Problem, Table, Time } from './ui.tsx';

const list = getRouteApi('/tasks');
const route = getRouteApi('/tasks/$taskId');
type Task = Schemas['Task'];

const STATES = ['open', 'answered', 'done', 'cancelled'] as const;
/** What a person has to answer. */
const OF_PERSONS = ['confirmation', 'effect', 'question', 'call', 'budget'] as const;
/** What goes on by itself: at a time, or by a signal of another program. */
const BY_ITSELF = ['sleep', 'signal'] as const;
const KINDS = [...OF_PERSONS, ...BY_ITSELF];
/** Kinds that are looked for together. */
const GROUPS: Record<string, Task['kind'][]> = { person: [...OF_PERSONS], itself: [...BY_ITSELF] };
const WAITS: Record<string, string> = { person: 'a person', itself: 'a time or a signal' };

const oneOf = <Word extends string>(words: readonly Word[], value: string | undefined) =>
  words.find((word) => word === value);

/** What waits for a person; apart from it what waits for a time or a signal. */
export function TasksPage() {
  const search = list.useSearch();
  const navigate = list.useNavigate();
  const apps = useQuery(appsQuery);
  const state = oneOf(STATES, search.state) ?? 'open';
  const chosen = search.kind ?? 'person';
  const kind = GROUPS[chosen] ?? [oneOf(KINDS, chosen) ?? 'confirmation'];
  const { in: appName, of: ownerId, assignee, text } = search;
  const query = useInfiniteQuery({
    queryKey: ['tasks', appName, ownerId, state, kind, assignee, text],
    queryFn: ({ pageParam }) =>
      ask(
        api.GET('/tasks', {
          params: { query: { appName, ownerId, state, kind, assignee, text, limit: 50, cursor: pageParam } },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    refetchInterval: 5_000,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = fieldsOf(event.currentTarget);
    void navigate({ search: (before) => ({ ...before, ...values }) });
  };
  return (
    <>
      <h1>Tasks</h1>
      <form className="filters" onSubmit={submit} key={JSON.stringify(search)} aria-label="Find tasks">
        <label>
          State
          <select name="state" defaultValue={state}>
            {STATES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          Waits for
          <select name="kind" defaultValue={chosen}>
            <option value="person">a person</option>
            {OF_PERSONS.map((each) => (
              <option key={each}>{each}</option>
            ))}
            <option value="itself">a time or a signal</option>
            {BY_ITSELF.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          Application
          <select name="in" key={apps.data?.length} defaultValue={appName ?? ''}>
            <option value="">all</option>
            {[...new Set([...(apps.data ?? []), ...(appName ? [appName] : [])])].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          User
          <input name="of" placeholder="all" defaultValue={ownerId} />
        </label>
        <label>
          Assigned to
          <input name="assignee" placeholder="anybody" defaultValue={assignee} />
        </label>
        <label>
          Search
          <input name="text" type="search" placeholder="what is asked" defaultValue={text} />
        </label>
        <Button type="submit">Search</Button>
      </form>
      <Loaded query={query}>
        {({ pages }) => {
          const tasks = pages.flatMap(({ items }) => items);
          if (tasks.length === 0)
            return (
              <Empty>
                No task that waits for {WAITS[chosen] ?? `a ${chosen}`} is {state} here.{' '}
                {chosen !== 'itself' && (
                  <Link to="/tasks" search={(before) => ({ ...before, kind: 'itself' })}>
                    What waits for a time or a signal
                  </Link>
                )}
              </Empty>
            );
          return (
            <>
              <Table label="Tasks" head={['Task', 'Kind', 'State', 'For', 'Application', 'Asked by', 'Since', 'Until']}>
                {tasks.map((task) => (
                  <tr key={task.id}>
                    <td>
                      <Link to="/tasks/$taskId" params={{ taskId: task.id }}>
                        {task.form.hint ?? task.form.tool}
                      </Link>
                      <div className="hint">{task.form.tool}</div>
                    </td>
                    <td>{task.kind}</td>
                    <td>
                      <Badge>{task.state}</Badge>
                    </td>
                    <td>{whom(task)}</td>
                    <td>{task.appName}</td>
                    <td>{task.requestedBy}</td>
                    <td>
                      <Time at={task.createTime} age />
                    </td>
                    <td>
                      <Time at={task.expireTime} age />
                    </td>
                  </tr>
                ))}
              </Table>
              {query.hasNextPage && <Button onPress={() => void query.fetchNextPage()}>More</Button>}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

const isByItself = ({ kind }: Task) => oneOf(BY_ITSELF, kind) !== undefined;

const whom = (task: Task) =>
  [...task.users, ...task.groups.map((group) => `group ${group}`)].join(', ') ||
  (isByItself(task) ? 'nobody' : 'the user of the session');

/** One task: what is asked, and what to do about it. */
export function TaskPage() {
  const { taskId } = route.useParams();
  const query = useQuery({
    queryKey: ['task', taskId],
    queryFn: () => ask(api.GET('/tasks/{task_id}', { params: { path: { task_id: taskId } } })),
    refetchInterval: 5_000,
  });
  return (
    <>
      <p>
        <Link to="/tasks">Tasks</Link>
      </p>
      <Loaded query={query}>{(task) => <OneTask task={task} />}</Loaded>
    </>
  );
}

function OneTask({ task }: { task: Task }) {
  const { form, sessionId, comments, approvals, approvalsNeeded } = task;
  return (
    <>
      <h1>{form.hint ?? form.tool}</h1>
      <Facts
        facts={[
          ['State', <Badge key="state">{task.state}</Badge>],
          ['Kind', task.kind],
          ['Tool', <code key="tool">{form.tool}</code>],
          ['For', whom(task)],
          ['Approvals', `${approvals.length} of ${approvalsNeeded}`],
          ['Since', <Time key="since" at={task.createTime} />],
          ['Until', <Time key="until" at={task.expireTime} />],
          ['Decided by', task.decidedBy ?? '–'],
          [
            'Session',
            sessionId === undefined ? (
              '–'
            ) : (
              <Link
                key="session"
                to="/sessions/$appName/$userId/$sessionId"
                params={{ appName: task.appName, userId: task.requestedBy, sessionId }}
              >
                {sessionId}
              </Link>
            ),
          ],
        ]}
      />
      {form.args && <Folded label="Arguments" value={form.args} open={task.kind !== 'question'} />}
      {task.answer && (
        <>
          <h2>Answer</h2>
          <Json value={task.answer} />
        </>
      )}
      {comments.map(({ by, at, text }) => (
        <p key={`${by} ${at}`}>
          <strong>{by}</strong> <Time at={at} />: {text}
        </p>
      ))}
      {task.state === 'open' && <Decide task={task} />}
    </>
  );
}

type Change = paths['/tasks/{task_id}']['patch']['requestBody']['content']['application/json'];
const change = (taskId: string, body: Change) =>
  ask(api.PATCH('/tasks/{task_id}', { params: { path: { task_id: taskId } }, body }));

/** Answers or rejects a task. */
export function AnswerForm({ task, asksWho }: { task: Task; asksWho: boolean }) {
  const queries = useQueryClient();
  const mutation = useMutation({
    mutationFn: (body: Change) => change(task.id, body),
    onSuccess: () => queries.invalidateQueries(),
  });
  const reject = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const { text } = fieldsOf(event.currentTarget);
    mutation.mutate({ action: 'reject', ...(text && { text }) });
  };
  const isYesOrNo = /^(confirmation|effect|budget)$/.test(task.kind);
  const schema = schemaOf(task);
  const isConfirmed = schema !== undefined && isPlain(schema);
  return (
    <>
      <SchemaForm
        schema={schema}
        action={isYesOrNo ? 'Allow' : isConfirmed ? 'Confirm' : 'Answer'}
        asksWho={asksWho}
        onAnswer={(answer, by) => mutation.mutate({ action: 'answer', ...(answer && { answer }), ...(by && { by }) })}
      />
      {mutation.error && <Problem error={mutation.error} />}
      <form className="filters" onSubmit={reject}>
        <label>
          Reason
          <input name="text" maxLength={2000} />
        </label>
        <Button type="submit" className="danger">
          {isConfirmed ? 'Decline' : 'Reject'}
        </Button>
      </form>
    </>
  );
}

/** The schema of an answer: without one of its own, a question or a call takes one of its `options`, or words. */
function schemaOf({ kind, form: { args, schema } }: Task): object | undefined {
  const isFree = kind === 'question' && schema !== undefined && takesAnything(schema);
  if (!isFree && (schema !== undefined || kind !== 'call')) return schema;
  const options = args?.['options'];
  const title = typeof args?.['message'] === 'string' ? args['message'] : 'Answer';
  const result = { type: 'string', title, ...(Array.isArray(options) && { enum: options as unknown[] }) };
  return { properties: { result }, required: ['result'] };
}

/** `ask_person` without a schema takes any object. */
const takesAnything = (schema: object) => {
  const [name, ...more] = Object.keys(schema);
  return more.length === 0 && (name === undefined || name === 'type');
};

function Decide({ task }: { task: Task }) {
  const { me } = useViewer();
  const queries = useQueryClient();
  const mutation = useMutation({
    mutationFn: (body: Change) => change(task.id, body),
    onSuccess: () => queries.invalidateQueries(),
  });
  const isForPerson = !isByItself(task);
  const act = (action: Change['action'], toBody: (values: Record<string, string | undefined>) => Partial<Change>) => {
    return (event: FormEvent<HTMLFormElement>) => {
      event.preventDefault();
      mutation.mutate({ action, ...toBody(fieldsOf(event.currentTarget)) });
    };
  };
  return (
    <>
      {mutation.error && <Problem error={mutation.error} />}
      {isForPerson && (
        <section aria-label="Decide">
          <h2>Decide</h2>
          <AnswerForm task={task} asksWho={me === undefined} />
        </section>
      )}
      <section aria-label="Other">
        <h2>Or</h2>
        <form
          className="filters"
          onSubmit={act('assign', ({ users, groups }) => ({ users: words(users), groups: words(groups) }))}
        >
          <label>
            Users
            <input name="users" defaultValue={task.users.join(', ')} placeholder="u1, u2" />
          </label>
          <label>
            Groups
            <input name="groups" defaultValue={task.groups.join(', ')} />
          </label>
          <Button type="submit">Assign</Button>
        </form>
        <form className="filters" onSubmit={act('postpone', ({ hours }) => ({ seconds: Number(hours) * 3_600 }))}>
          <label>
            Hours from now
            <input name="hours" type="number" min={1} max={8_784} defaultValue={24} required />
          </label>
          <Button type="submit">Postpone</Button>
        </form>
        <form className="filters" onSubmit={act('comment', ({ text }) => ({ text: text ?? '' }))}>
          <label>
            Comment
            <input name="text" maxLength={2000} required />
          </label>
          <Button type="submit">Comment</Button>
        </form>
      </section>
    </>
  );
}

const words = (text = '') =>
  text
    .split(',')
    .map((word) => word.trim())
    .filter(Boolean);
