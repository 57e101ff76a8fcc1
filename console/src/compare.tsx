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
                The first {formatCount(sameEvents)} events are the same; {formatCount(differingEvents)} of the others
                differ. {formatCount(differingKeys)} keys of the state differ.
              </p>
              {events.length + state.length === 0 ? (
                <Empty>No difference.</Empty>
              ) : (
                <Table label="Differences" head={['Where', 'Here', 'There']}>
                  {events.map(({ sequence, path, further = [], ...sides }) => (
                    <tr key={`${sequence} ${path}`}>
                      <td>
                        #{sequence} <code>{path === '' ? 'the whole event' : path}</code>
                        {further.length > 0 && (
                          <div className="hint">
                            Also{' '}
                            {further.map((each) => (
                              <div key={each}>
                                <code>{each}</code>
                              </div>
                            ))}
                          </div>
                        )}
                      </td>
                      <Sides {...sides} />
                    </tr>
                  ))}
                  {state.map(({ key, ...sides }) => (
                    <tr key={`state ${key}`}>
                      <td>
                        state <code>{key}</code>
                      </td>
                      <Sides {...sides} />
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

interface SidesProps {
  value?: unknown;
  other?: unknown;
  missing?: 'value' | 'other' | undefined;
}

/** What is missing is a dash, what is null is `null`. */
const Sides = ({ value, other, missing }: SidesProps) => (
  <>
    <td>{missing === 'value' ? '–' : <Json value={value} />}</td>
    <td>{missing === 'other' ? '–' : <Json value={other} />}</td>
  </>
);
