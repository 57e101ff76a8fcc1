import * as oauth from 'oauth4webapi';
import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import type { IssuerSettings, Settings } from './api.ts';
import { HOME } from './place.ts';
import { Problem } from './ui.tsx';

/** What has to outlive the way to the issuer and back. */
const PLACE = 'console.login';

/**
 * The key or token, which outlives a reload: the storage is that of this tab and origin, and gone with the tab. Only a
 * script of this origin could read it there, and the policy of the page lets none in but its own.
 */
const CREDENTIAL = 'console.credential';
export const keptCredential = () => sessionStorage.getItem(CREDENTIAL) ?? undefined;
export function keepCredential(value: string | undefined): void {
  if (value === undefined) sessionStorage.removeItem(CREDENTIAL);
  else sessionStorage.setItem(CREDENTIAL, value);
}

interface OnTheWay {
  issuer: string;
  verifier: string;
  state: string;
  back: string;
}

/** Only an issuer of this machine may be asked without TLS. */
const optionsOf = (issuer: string) => ({ [oauth.allowInsecureRequests]: issuer.startsWith('http://') });

async function discover(issuer: string) {
  const url = new URL(issuer);
  return oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, optionsOf(issuer)));
}

/** Sends the browser to the issuer (authorization code, PKCE). */
async function leave({ issuer, clientId = '', audience }: IssuerSettings): Promise<void> {
  const server = await discover(issuer);
  if (!server.authorization_endpoint) throw new Error('The issuer names no page to log in at.');
  const [verifier, state] = [oauth.generateRandomCodeVerifier(), oauth.generateRandomState()];
  const back = location.pathname + location.search;
  sessionStorage.setItem(PLACE, JSON.stringify({ issuer, verifier, state, back } satisfies OnTheWay));
  const url = new URL(server.authorization_endpoint);
  url.search = new URLSearchParams({
    response_type: 'code',
    client_id: clientId,
    redirect_uri: HOME,
    scope: 'openid',
    ...(audience && { audience }),
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  }).toString();
  location.assign(url);
}

/** Takes the token that the issuer has sent the browser back for. @returns `undefined` where it has not */
export async function comeBack({ issuers }: Settings): Promise<string | undefined> {
  const kept = sessionStorage.getItem(PLACE);
  const url = new URL(location.href);
  if (!kept || !url.searchParams.has('state')) return undefined;
  sessionStorage.removeItem(PLACE);
  const { issuer, verifier, state, back } = JSON.parse(kept) as OnTheWay;
  history.replaceState(null, '', back);
  const { clientId = '' } = issuers.find((each) => each.issuer === issuer) ?? {};
  const server = await discover(issuer);
  const client = { client_id: clientId };
  const parameters = oauth.validateAuthResponse(server, client, url, state);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    oauth.None(),
    parameters,
    HOME,
    verifier,
    optionsOf(issuer),
  );
  return (await oauth.processAuthorizationCodeResponse(server, client, response)).access_token;
}

/** The user that a token names, for what is shown only: the service checks it. A key names none. */
export function userOf(credential: string, issuers: readonly IssuerSettings[]): string | undefined {
  try {
    const text = atob((credential.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/'));
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0)))) as object;
    const { iss, ...others } = claims as Record<string, unknown>;
    const { userClaim = '', userPrefix = '' } = issuers.find(({ issuer }) => issuer === iss) ?? {};
    const user = others[userClaim];
    return typeof user === 'string' ? userPrefix + user : undefined;
  } catch {
    return undefined;
  }
}

const WHAT = { local: '', key: 'Key', jwt: 'Token', 'key+jwt': 'Key or token' };

/** Asks for a credential that the mode takes. */
export function Login(props: { settings: Settings; reason?: string; onCredential: (value: string) => void }) {
  const { settings, onCredential } = props;
  const [problem, setProblem] = useState(props.reason);
  const [value, setValue] = useState('');
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (value.trim() !== '') onCredential(value.trim());
  };
  const asked = settings.issuers.filter(({ clientId }) => clientId !== undefined);
  const isPasted = settings.mode !== 'jwt' || asked.length < settings.issuers.length;
  return (
    <main className="login">
      <h1>Agent runtime</h1>
      {problem && <Problem error={new Error(problem)} />}
      {asked.map((each) => (
        <Button
          key={each.issuer}
          className="primary"
          onPress={() => void leave(each).catch((error: Error) => setProblem(error.message))}
        >
          Log in at {new URL(each.issuer).host}
        </Button>
      ))}
      {isPasted && (
        <form onSubmit={submit}>
          <label>
            {WHAT[settings.mode]}
            <input
              type="password"
              autoComplete="off"
              spellCheck={false}
              value={value}
              onChange={(event) => setValue(event.target.value)}
            />
          </label>
          <Button className="primary" type="submit">
            Log in
          </Button>
          <p className="hint">It is kept in this tab until you log out or close it.</p>
        </form>
      )}
    </main>
  );
}
