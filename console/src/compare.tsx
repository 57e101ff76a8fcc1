import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import type { FormEvent } from 'react';
import { Button } from 'react-aria-components';
import { api, ask, inPath, type SessionName } from './api.ts';
import { formatCount } from './format.ts';
import { Empty, fieldsOf, Json, Loaded, Table } from './ui.tsx';

const route = getRouteApi('/sessions/$appName/$userId/$sessionId');

/** What differs between this session and another of the same user. */
export function Compare({ name, at }: { name: SessionName; at: number | undefined }) {
  const { other } = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery({
    queryKey: ['diff', name, other, at],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/diff', {
          params: { path: inPath(name), query: { other: other ?? '', atSequence: at } },
        }),
      ),
    enabled: other !== undefined,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const chosen = fieldsOf(event.currentTarget)['other'];
    void navigate({ search: (before) => ({ ...before, other: chosen }) });
  };
  return (
    <>
      <form className="filters" onSubmit={submit} key={other}>
        <label>
          Other session of {name.user}
          <input name="other" defaultValue={other} placeholder="its id" />
        </label>
        <Button type="submit">Compare</Button>
      </form>
      {other !== undefined && (
        <Loaded query={query}>
          {({ sameEvents, differingEvents, events, differingKeys, state }) => (
            <>
              <p>
                {formatCount(sameEvents)} events are the same, {formatCount(differingEvents)} differ;{' '}
                {formatCount(differingKeys)} keys of the state differ.
              </p>
              {events.length + state.length === 0 ? (
                <Empty>No difference.</Empty>
              ) : (
                <Table label="Differences" head={['Where', 'Here', 'There']}>
                  {events.map(({ sequence, path, value, other: there }) => (
                    <tr key={`${sequence} ${path}`}>
                      <td>
                        #{sequence} <code>{path}</code>
                      </td>
                      <Sides here={value} there={there} />
                    </tr>
                  ))}
                  {state.map(({ key, value, other: there }) => (
                    <tr key={`state ${key}`}>
                      <td>
                        state <code>{key}</code>
                      </td>
                      <Sides here={value} there={there} />
                    </tr>
                  ))}
                </Table>
              )}
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

const Sides = ({ here, there }: { here: unknown; there: unknown }) => (
  <>
    <td>{here === undefined ? '–' : <Json value={here} />}</td>
    <td>{there === undefined ? '–' : <Json value={there} />}</td>
  </>
);
