import { lookup } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { callbackify } from 'node:util';
import ipaddr from 'ipaddr.js';
import type { Agent } from 'undici';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { CallerCounts } from '../work/fair-semaphore.ts';

/** Rules for outgoing requests to URLs that a request, a model or a tool chose. */
export interface EgressPolicy {
  /** True in local mode: allows loopback addresses, also by http. */
  allowLoopback: boolean;
  /**
   * If set, only these hosts are reachable: a host (`mcp.example.com`), its subdomains (`*.example.com`), or an origin
   * (`http://mcp:3000`), for which http and private addresses are allowed, because the operator vouches for it.
   */
  allowedHosts?: string[];
  /** Resolves a host name; default: the system's resolver. */
  resolve?: (hostname: string) => Promise<string[]>;
}

/** An HTTP client under an egress policy. It connects only to checked addresses. */
export interface Egress {
  /**
   * Like the global `fetch`. Follows up to 3 redirects and checks each target; with `redirect: 'manual'` none.
   * @throws {AgentError} `egress_denied` if the policy forbids the address
   */
  fetch: (url: string | URL, init?: RequestInit) => Promise<Response>;
  /** Aborts open requests and closes the client's own connections. */
  close: () => Promise<void>;
}

const MAX_REDIRECTS = 3;
/** Maximum idle time of a connection in milliseconds, whatever the server suggests. */
const MAX_IDLE_MS = 30_000;
const MAX_RESPONSE_BYTES = INPUT_LIMITS.fetchedAnswer.bytes;
/** Address of Azure's host agent, which serves an instance's secrets although the address looks public. */
const METADATA_ADDRESSES = new Set(['168.63.129.16']);
const GLOBAL_IPV6 = ipaddr.IPv6.parseCIDR('2000::/3');

export interface Sockets {
  open: () => Promise<Agent>;
  close: () => Promise<void>;
}

/** Shared connections, at most `maximum` per origin. Idle ones close after 4 s, or earlier if the server says so. */
export function createSockets(policy: EgressPolicy, maximum?: number): Sockets {
  let opening: Promise<Agent> | undefined;
  return {
    open: () => (opening ??= openAgent(policy, maximum)),
    close: async () => (await opening)?.destroy(),
  };
}

/**
 * Creates an HTTP client, which must be closed after use.
 * @param userId - the user whose limit on concurrent responses applies
 * @param shared - connections that outlive the client. Default: the client has its own.
 */
export function createEgress(policy: EgressPolicy, userId = '', shared?: Sockets): Egress {
  const sockets = shared ?? createSockets(policy);
  const incoming = new Incoming(userId);
  const ending = new AbortController();
  return {
    fetch: async (url, init) => {
      const start = new URL(url);
      const signal = AbortSignal.any([ending.signal, ...(init?.signal ? [init.signal] : [])]);
      const response = await fetchChecked(policy, await sockets.open(), start, { ...init, signal });
      return capped(response, incoming);
    },
    close: async () => {
      incoming.close();
      if (shared) ending.abort();
      else await sockets.close();
    },
  };
}

/** Decoded bytes of unfinished responses in this process, by user. */
const incomingBytes = new CallerCounts(INPUT_LIMITS.fetchedAnswersOfAUser.bytes);

/** The bytes of unfinished responses of a single client, counted for its user. */
class Incoming {
  readonly #userId: string;
  #bytes = 0;
  #isClosed = false;

  constructor(userId: string) {
    this.#userId = userId;
  }

  /** Counts bytes that arrived; negative ones when a response ended. @throws {AgentError} above the user's limit */
  add(bytes: number): void {
    if (this.#isClosed) return;
    this.#bytes += bytes;
    const { maximum } = incomingBytes;
    if (incomingBytes.add(this.#userId, bytes) > maximum && bytes > 0)
      throw denied(`The responses that are coming for this user are together larger than ${maximum} bytes`);
  }

  /** Takes the responses that were not read to the end off the user's count. */
  close(): void {
    this.add(-this.#bytes);
    this.#isClosed = true;
  }
}

/** Loads undici with the first request, because its 109 modules are a fifth of all modules that a start would load. */
async function openAgent(policy: EgressPolicy, connections: number | null = null): Promise<Agent> {
  const undici = await import('undici');
  const connect = { lookup: checkedLookup(policy), autoSelectFamily: true, timeout: 10_000 };
  return new undici.Agent({ connect, connections, keepAliveMaxTimeout: MAX_IDLE_MS });
}

async function fetchChecked(policy: EgressPolicy, dispatcher: Agent, start: URL, init: RequestInit): Promise<Response> {
  let url = start;
  let request = init;
  for (let hops = 0; ; hops += 1) {
    checkUrl(url, policy);
    const response = await send(dispatcher, url, request);
    const location = response.headers.get('location');
    const isRedirect = response.status >= 301 && response.status <= 308 && location !== null;
    if (!isRedirect || init.redirect === 'manual') return response;
    await response.body?.cancel();
    if (hops === MAX_REDIRECTS) throw denied(`${start.host} redirects more than ${MAX_REDIRECTS} times`);
    const next = URL.parse(location, url.href);
    if (!next) throw denied(`${url.host} redirects to an address that is none`);
    request = afterRedirect(request, response.status, next.origin === url.origin);
    url = next;
  }
}

async function send(dispatcher: Agent, url: URL, init: RequestInit): Promise<Response> {
  const undici = await import('undici');
  try {
    const request = { ...init, redirect: 'manual', dispatcher } as Parameters<typeof undici.fetch>[1];
    return await undici.fetch(url, request);
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined;
    throw cause instanceof AgentError ? cause : error;
  }
}

/**
 * Adapts a request to a redirect as browsers do: 303, and 301 or 302 after POST, become GET. Another origin gets only
 * `accept` of the headers.
 */
function afterRedirect(init: RequestInit, status: number, isSameOrigin: boolean): RequestInit {
  const keepsBody = status === 307 || status === 308 || (init.method ?? 'GET') === 'GET';
  const { body: _body, headers, ...rest } = init;
  const redirected = keepsBody ? init : { ...rest, method: 'GET', ...(headers === undefined ? {} : { headers }) };
  if (isSameOrigin) return redirected;
  const accept = new Headers(headers).get('accept');
  return { ...redirected, headers: accept === null ? {} : { accept } };
}

/** Limits a response: its body fails if its bytes, or those of all the user's unfinished responses, are too many. */
function capped(response: Response, incoming: Incoming): Response {
  if (!response.body) return response;
  const { status, statusText, headers } = response;
  return new Response(ReadableStream.from(counted(response.body, incoming)), { status, statusText, headers });
}

async function* counted(body: AsyncIterable<Uint8Array>, incoming: Incoming): AsyncGenerator<Uint8Array, void, void> {
  let bytes = 0;
  try {
    for await (const chunk of body) {
      bytes += chunk.byteLength;
      incoming.add(chunk.byteLength);
      if (bytes > MAX_RESPONSE_BYTES) throw denied(`The response is larger than ${MAX_RESPONSE_BYTES} bytes`);
      yield chunk;
    }
  } finally {
    incoming.add(-bytes);
  }
}

/** Returns why the policy forbids a URL, as far as can be told without resolving its host name. */
export function whyDenied(url: URL, policy: EgressPolicy): string | undefined {
  try {
    checkUrl(url, policy);
    return undefined;
  } catch (error) {
    if (error instanceof AgentError) return error.message;
    throw error;
  }
}

/** Checks a URL without resolving its name. @throws {AgentError} `egress_denied` */
function checkUrl(url: URL, policy: EgressPolicy): void {
  if (url.username !== '' || url.password !== '')
    throw denied(`${url.host} may not be called with a name or password in its address`);
  if (isVouchedFor(url, policy)) return;
  const host = bareHost(url);
  if (policy.allowedHosts && !policy.allowedHosts.some((allowed) => matchesHost(host, allowed)))
    throw denied(`${url.host} is not an allowed host`);
  const isLocal = policy.allowLoopback && isLoopbackName(host);
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && isLocal))
    throw denied(`${url.host} may be called by https only`);
  if (isIP(host) !== 0) checkAddress(host, url.host, policy);
}

/** Returns the host without IPv6 brackets and trailing dot; `URL` has already made it lower case. */
const bareHost = (url: URL) => url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');

const isLoopbackName = (host: string) =>
  host === 'localhost' || host.endsWith('.localhost') || (isIP(host) !== 0 && toRange(host) === 'loopback');

const isVouchedFor = (url: URL, { allowedHosts = [] }: EgressPolicy) =>
  allowedHosts.some((allowed) => allowed.includes('://') && URL.parse(allowed)?.origin === url.origin);

function matchesHost(host: string, allowed: string): boolean {
  if (allowed.includes('://')) return false;
  const name = allowed.toLowerCase();
  return name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name;
}

/** Returns an address's range: `public`, `loopback`, or another of ipaddr.js. IPv4 mapped into IPv6 counts as IPv4. */
function toRange(address: string): string {
  const parsed = ipaddr.process(address);
  const range = parsed.range();
  if (range !== 'unicast' || METADATA_ADDRESSES.has(parsed.toString())) return range === 'unicast' ? 'metadata' : range;
  // ipaddr.js calls unassigned IPv6 addresses `unicast`, even `::7f00:1`; only 2000::/3 is assigned (RFC 4291 §2.4).
  return parsed instanceof ipaddr.IPv6 && !parsed.match(GLOBAL_IPV6) ? 'unassigned' : 'public';
}

function checkAddress(address: string, host: string, policy: EgressPolicy): void {
  const range = toRange(address);
  if (range === 'public' || (range === 'loopback' && policy.allowLoopback)) return;
  throw denied(`${host} is not a public address`);
}

/**
 * Resolves host names for all connections, which use the very addresses that were checked, so DNS cannot change in
 * between. All addresses of a name must be allowed: with `autoSelectFamily` Node requests all of them.
 */
function checkedLookup(policy: EgressPolicy): LookupFunction {
  const resolve = policy.resolve ?? systemResolve;
  const vouched = new Set(
    (policy.allowedHosts ?? []).flatMap((allowed) => (allowed.includes('://') ? [URL.parse(allowed)?.hostname] : [])),
  );
  return callbackify(async (hostname: string, _options: object) => {
    const addresses = await resolve(hostname);
    if (!vouched.has(hostname)) for (const address of addresses) checkAddress(address, hostname, policy);
    return addresses.map((address) => ({ address, family: isIP(address) }));
  });
}

const systemResolve = async (hostname: string) => (await lookup(hostname, { all: true })).map(({ address }) => address);

const denied = (what: string) => new AgentError('egress_denied', `${what}.`);
