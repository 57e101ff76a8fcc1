import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode, useCallback, useEffect, useMemo, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { ApiError, setCredential, setOnRefusal, type Settings } from './api.ts';
import { ViewerContext } from './context.tsx';
import { forgetDrafts } from './draft.ts';
import { comeBack, keepCredential, keptCredential, Login, userOf } from './login.tsx';
import { HOME } from './place.ts';
import { router } from './router.tsx';
import { applyTheme } from './theme.ts';
import { Loading, Problem } from './ui.tsx';
import './styles.css';

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // What was refused will be again; what did not arrive may.
      retry: (count, error) => count < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
    },
  },
});

function Console({
  settings,
  returned,
}: {
  settings: Settings;
  returned: { token?: string | undefined; problem?: string };
}) {
  const [credential, setOwnCredential] = useState(returned.token);
  const [reason, setReason] = useState(returned.problem);
  const take = useCallback((value: string | undefined, why?: string) => {
    setCredential(value);
    keepCredential(value);
    queries.clear();
    setOwnCredential(value);
    setReason(why);
  }, []);
  useEffect(() => setOnRefusal(() => take(undefined, 'The service does not accept this credential.')), [take]);
  const viewer = useMemo(
    () => ({
      settings,
      me: credential ? userOf(credential, settings.issuers) : undefined,
      logOut: () => {
        forgetDrafts();
        take(undefined);
      },
    }),
    [settings, credential, take],
  );
  if (settings.mode !== 'local' && credential === undefined)
    return <Login key={reason} settings={settings} {...(reason && { reason })} onCredential={take} />;
  return (
    <ViewerContext value={viewer}>
      <RouterProvider router={router} />
    </ViewerContext>
  );
}

// Its address is relative to the first view.
const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
if (icon) icon.href = `${HOME}icon.svg`;

const root = createRoot(document.getElementById('root') as HTMLElement);
const show = (content: React.ReactNode) =>
  root.render(
    <StrictMode>
      <QueryClientProvider client={queries}>{content}</QueryClientProvider>
    </StrictMode>,
  );

async function start(): Promise<void> {
  show(<Loading />);
  const response = await fetch(`${HOME}config.json`);
  if (!response.ok) throw new ApiError(response.status, 'The console cannot be set up.');
  const settings = (await response.json()) as Settings;
  const returned: { token?: string | undefined; problem?: string } = {};
  try {
    const token = await comeBack(settings);
    if (token !== undefined) returned.token = token;
  } catch (error) {
    returned.problem = `The issuer did not log you in: ${(error as Error).message}`;
  }
  if (settings.mode === 'local') keepCredential(undefined);
  else if (returned.token === undefined) returned.token = keptCredential();
  else keepCredential(returned.token);
  setCredential(returned.token);
  show(<Console settings={settings} returned={returned} />);
}

start().catch((error: Error) => show(<Problem error={error} retry={() => location.reload()} />));
