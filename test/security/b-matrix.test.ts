import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { permissionOf } from '../../docs/permissions.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { createKey, type NewKey } from '../../src/platform/http/access/key-ring.ts';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import { camelCase, pathParameters, listRoutes } from '../../src/platform/http/operation/paths.ts';
import { runLive } from '../../src/features/live/run-live.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { client, startOn } from '../support/app.ts';
import { createTestDatabase } from '../support/database.ts';
import { signingKey } from '../support/issuer.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';
import { ABSENT, childOf, insertOthers, makeOneOfEach, openSnapshots, type Snapshots } from './support/fixture.ts';
import { NAMED_OPERATIONS, type Names, type Sent, toRequest, writesSharedState } from './support/requests.ts';
import { DOOR_NAMES } from '../../src/process/config.ts';

/**
 * Every operation at every path, for every kind of caller and every kind of object. What is expected is computed from
 * what the operation declares: its owner, its scope, its statuses.
 */

type AnyOperation = Operation<unknown>;
type Mode = 'key' | 'jwt' | 'key+jwt';
/** Who calls, as the rules see it: what is `undefined` has no limit. */
interface Credential {
  name: string;
  kind: 'key' | 'token';
  isRefused?: boolean;
  scopes?: readonly string[];
  users?: readonly string[];
  apps?: readonly string[];
  /** True: it also calls a service that takes its kind of credential alone. */
  alone?: true;
}
interface Caller extends Credential {
  mode: Mode;
}
/** What a request is about. */
type Target = 'of alice' | 'child of alice' | 'absent' | 'shared state' | 'of the app';
interface Cell {
  operation: AnyOperation;
  path: string;
  caller: Caller;
  target: Target;
}

const USER = ['invoke', 'read', 'write'];
const ALL = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
/** The user of the second issuer whose claim says `alice` too. */
const PARTNER = 'partner:alice';
const CREDENTIALS: Credential[] = [
  { name: 'nobody', kind: 'token', isRefused: true, alone: true },
  { name: 'token of another issuer', kind: 'token', isRefused: true, alone: true },
  { name: 'token signed by the second issuer', kind: 'token', isRefused: true },
  { name: 'token with the prefix of the second issuer', kind: 'token', isRefused: true },
  { name: 'expired token', kind: 'token', isRefused: true },
  { name: 'unsigned token', kind: 'token', isRefused: true },
  { name: 'alice', kind: 'token', scopes: USER, users: ['alice'], alone: true },
  { name: 'bob', kind: 'token', scopes: USER, users: ['bob'] },
  { name: 'alice with all scopes', kind: 'token', users: ['alice'], alone: true },
  { name: 'bob with all scopes', kind: 'token', users: ['bob'] },
  { name: 'alice of the second issuer, with all scopes', kind: 'token', users: [PARTNER] },
  { name: 'user who is called like a key', kind: 'token', scopes: USER, users: ['service'] },
  { name: 'alice who develops', kind: 'token', scopes: ['develop'], users: ['alice'] },
  { name: 'bob who develops', kind: 'token', scopes: ['develop'], users: ['bob'] },
  { name: 'nobody', kind: 'key', isRefused: true, alone: true },
  { name: 'wrong key', kind: 'key', isRefused: true, alone: true },
  { name: 'expired key', kind: 'key', isRefused: true },
  { name: 'reader', kind: 'key', scopes: ['read'] },
  { name: 'invoker', kind: 'key', scopes: ['invoke'] },
  { name: 'writer', kind: 'key', scopes: ['write'] },
  { name: 'developer', kind: 'key', scopes: ['develop'] },
  { name: 'operator without the rest', kind: 'key', scopes: ['admin'] },
  { name: 'key of alice', kind: 'key', users: ['alice'] },
  { name: 'key of bob', kind: 'key', users: ['bob'] },
  { name: 'reader of alice', kind: 'key', scopes: ['read'], users: ['alice'] },
  { name: 'invoker of bob', kind: 'key', scopes: ['invoke'], users: ['bob'] },
  { name: 'key of the app', kind: 'key', apps: ['harness_agent'], alone: true },
  { name: 'key of alice in the app', kind: 'key', users: ['alice'], apps: ['harness_agent'] },
  { name: 'key of alice in another app', kind: 'key', users: ['alice'], apps: ['another'] },
  { name: 'key of another app', kind: 'key', apps: ['another'] },
  { name: 'service', kind: 'key', alone: true },
  { name: 'key with two dots, as a token has', kind: 'key' },
];
const CALLERS: Caller[] = CREDENTIALS.flatMap((each): Caller[] => [
  { ...each, mode: 'key+jwt' },
  ...(each.alone ? [{ ...each, mode: each.kind === 'key' ? ('key' as const) : ('jwt' as const) }] : []),
]);

const operationsOf = (mode: Mode): AnyOperation[] => listAllOperations({ takesKeys: mode !== 'jwt' }) as AnyOperation[];
const all = operationsOf('key');
const idsOf = (mode: Mode) => new Set(operationsOf(mode).map(({ operationId }) => operationId));
const exists = { key: idsOf('key'), jwt: idsOf('jwt'), 'key+jwt': idsOf('key+jwt') };
const namesUser = ({ owner }: AnyOperation) => owner === 'path' || owner === 'caller' || typeof owner === 'object';
/** Names in the path beyond the application: without one an operation is about nothing that could be absent. */
const namesThing = (path: string) => pathParameters(path).some((name) => camelCase(name) !== 'appName');

const targetsOf = (operation: AnyOperation, path: string): Target[] => [
  ...(namesUser(operation) ? (['of alice'] as const) : (['of the app'] as const)),
  ...(namesUser(operation) || namesThing(path) ? (['absent'] as const) : []),
  ...(writesSharedState(operation) ? (['shared state'] as const) : []),
];
/** Who asks for the child session: of each kind one that may and one that may not. */
const CHILD_CALLERS = CALLERS.filter(
  ({ name, mode }) =>
    mode === 'key+jwt' &&
    [
      'alice',
      'bob',
      'alice with all scopes',
      'bob with all scopes',
      'alice of the second issuer, with all scopes',
      'key of alice',
      'key of bob',
      'reader of alice',
      'invoker of bob',
      'key of alice in another app',
      'key of another app',
      'service',
    ].includes(name),
);
const nothing: Names = { ...ABSENT, userId: 'alice' };
const namesSession = (operation: AnyOperation, path: string) => {
  const [one, other] = [nothing, childOf(nothing)].map((of) => toRequest(operation, path, of, 'in session'));
  return JSON.stringify(one) !== JSON.stringify(other);
};
const cells: Cell[] = listRoutes(all).flatMap(({ operation, path }) => [
  ...targetsOf(operation, path).flatMap((target) => CALLERS.map((caller) => ({ operation, path, caller, target }))),
  ...(namesUser(operation) && namesSession(operation, path)
    ? CHILD_CALLERS.map((caller) => ({ operation, path, caller, target: 'child of alice' as const }))
    : []),
]);

/** Why a caller is refused, or that it is served. */
type Outcome =
  | 'unknown path'
  | 'unauthenticated'
  | 'absent for tokens'
  | 'lacks scope'
  | 'lacks a further scope'
  | 'for keys'
  | 'foreign'
  | 'bound'
  | 'served';

/** The scope that an operation demands beside its own, for what is sent here, and why. */
const DEMANDED: Record<string, [scope: string, because: string]> = {
  importUser: ['import', 'it brings events in the name of others.'],
  replayInvocation: ['override', '`harness` changes the deployed agent.'],
  listAppInvocations: ['admin', 'it lists the invocations of all users.'],
  listAllInvocations: ['admin', 'it lists the invocations of all users.'],
};
/** What the agent of a child session alone does there: refused to whoever else may ask, and nothing changes. */
const OF_AGENT_ALONE = new Set([
  'addOpenAiItems',
  'appendEvent',
  'callA2a',
  'callMcp',
  'callMcpApp',
  'createCronjob',
  'createOpenAiResponse',
  'deleteOpenAiConversation',
  'deleteOpenAiResponse',
  'deleteSession',
  'harnessInvoke',
  'invokeLegacy',
  'replayInvocation',
  'rewindSession',
  'runAgUi',
  'runAgent',
  'runAgentSse',
  'sendA2aMessage',
  'sendAiSdkMessage',
  'startInvocation',
  'streamA2aMessage',
  'updateCronjob',
  'updateSession',
]);
/** A caller that acts for some users lists theirs, without it. */
const isDemandedOf = (id: string, { users }: Caller) => !/^list(App|All)Invocations$/.test(id) || !users;

function outcomeOf({ operation, path, caller, target }: Cell): Outcome {
  const { owner, scope } = operation;
  const { users, apps } = caller;
  const scopes: readonly string[] = caller.scopes ?? ALL;
  if (!exists[caller.mode].has(operation.operationId)) return 'unknown path';
  if (owner === 'open') return 'served';
  if (caller.isRefused) return 'unauthenticated';
  if (operation.isAbsentForTokens && caller.kind === 'token') return 'absent for tokens';
  if (!scopes.includes(scope)) return 'lacks scope';
  if (operation.isForKeys && caller.kind === 'token') return 'for keys';
  const namesOwner = owner === 'path' || typeof owner === 'object';
  if (namesOwner && users && !users.includes('alice')) return 'foreign';
  // It has a tool for each application that its caller may use.
  if (operation.operationId === 'callMcp') return 'served';
  if (apps && !apps.includes('harness_agent') && (namesOwner || path.includes('{app_name}'))) return 'foreign';
  if (caller.kind === 'key' && spansUsers(operation, path, caller)) return 'bound';
  if (target === 'shared state' && !scopes.includes('admin')) return 'lacks scope';
  const [demanded] = DEMANDED[operation.operationId] ?? [];
  if (demanded !== undefined && isDemandedOf(operation.operationId, caller) && !scopes.includes(demanded))
    return 'lacks a further scope';
  // Which applications there are is more than a key of some may know.
  if (apps && operation.operationId === 'listAppsOfUser') return 'foreign';
  // A signed-in user: the operation shows what is the user's own, and nothing of others.
  if (owner === 'caller' && isStranger(caller) && namesThingOfAlice(operation, path)) return 'foreign';
  return 'served';
}

const isStranger = ({ users, apps }: Caller) =>
  (users !== undefined && !users.includes('alice')) || (apps !== undefined && !apps.includes('harness_agent'));
/** False for what only makes or lists things: there a stranger is served, with the own ones. */
function namesThingOfAlice(operation: AnyOperation, path: string): boolean {
  const [own, absent] = [names, { ...ABSENT, userId: 'somebody' }].map((of) => toRequest(operation, path, of));
  return JSON.stringify(own) !== JSON.stringify(absent);
}

/** A key with limits does nothing that is about all users; what describes applications is for all who may read. */
function spansUsers(operation: AnyOperation, path: string, { users, apps }: Caller): boolean {
  const { owner, scope, servesBoundKeys } = operation;
  if ((!users && !apps) || servesBoundKeys) return false;
  if (owner !== 'caller' && (owner !== 'service' || scope === 'read')) return false;
  return users !== undefined || !path.includes('{app_name}');
}

/** The matrix is about rights: no limit of rates may answer in their place. */
const UNLIMITED = Object.fromEntries(
  ['READS', 'WRITES', 'INVOCATIONS'].map((name) => [`MAX_${name}_PER_MINUTE`, '1000000']),
);
vi.mock('../../src/platform/http/limits/login-limit.ts', async (original) => ({
  ...(await original<object>()),
  MAX_FAILED_LOGINS: 1_000_000,
}));
const dir = mkdtempSync(join(tmpdir(), 'agent-runtime-matrix-'));
const keyOf = (id: string, limits: Partial<NewKey> = {}) => createKey({ id, scopes: ALL, ...limits });
const keys = {
  'expired key': keyOf('expired', { expires: '2020-01-01T00:00:00Z' }),
  reader: keyOf('reader', { scopes: ['read'] }),
  invoker: keyOf('invoker', { scopes: ['invoke'] }),
  writer: keyOf('writer', { scopes: ['write'] }),
  developer: keyOf('developer', { scopes: ['develop'] }),
  'operator without the rest': keyOf('operator', { scopes: ['admin'] }),
  'reader of alice': keyOf('reader-of-alice', { scopes: ['read'], users: ['alice'] }),
  'invoker of bob': keyOf('invoker-of-bob', { scopes: ['invoke'], users: ['bob'] }),
  'key of the app': keyOf('of-the-app', { apps: ['harness_agent'] }),
  'key of alice in the app': keyOf('alice-in-app', { users: ['alice'], apps: ['harness_agent'] }),
  'key of alice in another app': keyOf('alice-elsewhere', { users: ['alice'], apps: ['another'] }),
  'key of alice': keyOf('of-alice', { users: ['alice'] }),
  'key of bob': keyOf('of-bob', { users: ['bob'] }),
  'key of another app': keyOf('of-app', { apps: ['another'] }),
  service: keyOf('service'),
};

/** A key that has the form of a token, and whose middle is JSON. */
const TWO_DOTS = 'eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.a-key-of-the-operator';

let tokens: TokenIssuer;
let partner: TokenIssuer;
let database: Awaited<ReturnType<typeof createTestDatabase>>;
const runtimes = new Map<Mode, Runtime>();
let snapshots: Snapshots;
let names: Names;
const headers = new Map<Caller, Record<string, string>>();

beforeAll(async () => {
  writeFileSync(
    join(dir, 'keys'),
    Object.values(keys)
      .map(({ entry }) => entry)
      .join('\n'),
  );
  [tokens, partner] = [await startTokenIssuer(), await startTokenIssuer()];
  await nameCallers();
  database = await createTestDatabase();
  const byKey = {
    ...UNLIMITED,
    CRONJOBS: 'true',
    WEBHOOKS: 'true',
    EVALS: 'true',
    DOORS: DOOR_NAMES.join(','),
  };
  const byToken = { ...byKey, ...tokens.environment };
  // A process that has ended writes nothing afterwards: no span comes between a snapshot and its comparison.
  const maker = await startOn(database.url, byToken);
  const asAlice = await tokens.headersOf('alice', { scopes: ALL.join(' ') });
  names = await makeOneOfEach(client(maker.url), 'alice', asAlice);
  await maker.close();
  const withKeys = { RUNTIME_API_KEYS: TWO_DOTS, RUNTIME_API_KEYS_FILE: join(dir, 'keys') };
  const issuers = [
    { issuer: tokens.issuer.url, audience: 'runtime', scopeClaim: 'scope' },
    { issuer: partner.issuer.url, audience: 'runtime', scopeClaim: 'scope', userPrefix: 'partner:' },
  ];
  runtimes.set('key', await startOn(database.url, { ...byKey, ...withKeys }));
  runtimes.set('jwt', await startOn(database.url, byToken));
  runtimes.set('key+jwt', await startOn(database.url, { ...byKey, ...withKeys, JWT_ISSUERS: JSON.stringify(issuers) }));
  await insertOthers(database.url, names);
  snapshots = await openSnapshots(database.url);
  await snapshots.take();
});
afterAll(async () => {
  await snapshots.close();
  for (const runtime of runtimes.values()) await runtime.close();
  await database.drop();
  await tokens.close();
  await partner.close();
});

async function nameCallers(): Promise<void> {
  const stranger = await signingKey('ES256', 'one');
  const forged = await new SignJWT({ sub: 'alice' })
    .setProtectedHeader({ alg: 'ES256', kid: 'one' })
    .setIssuer(tokens.issuer.url)
    .setAudience('runtime')
    .setExpirationTime('2h')
    .sign(stranger.privateKey);
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const given: Record<string, Record<string, string>> = {
    nobody: {},
    'wrong key': bearer(`${keys.service.key.slice(0, -1)}!`.replace('!', keys.service.key.endsWith('A') ? 'B' : 'A')),
    'token of another issuer': bearer(forged),
    'token signed by the second issuer': await partner.headersOf('alice', { issuer: tokens.issuer.url }),
    'token with the prefix of the second issuer': await tokens.headersOf(PARTNER),
    'unsigned token': bearer(`${TWO_DOTS.split('.')[0]}.${forged.split('.')[1]}.`),
    'user who is called like a key': await tokens.headersOf('service'),
    'alice of the second issuer, with all scopes': await partner.headersOf('alice', { scopes: ALL.join(' ') }),
    'key with two dots, as a token has': bearer(TWO_DOTS),
    'expired token': await tokens.headersOf('alice', { expires: '-2h' }),
    alice: await tokens.headersOf('alice'),
    bob: await tokens.headersOf('bob'),
    'alice with all scopes': await tokens.headersOf('alice', { scopes: ALL.join(' ') }),
    'bob with all scopes': await tokens.headersOf('bob', { scopes: ALL.join(' ') }),
    'alice who develops': await tokens.headersOf('alice', { scopes: 'develop' }),
    'bob who develops': await tokens.headersOf('bob', { scopes: 'develop' }),
    ...Object.fromEntries(Object.entries(keys).map(([name, { key }]) => [name, bearer(key)])),
  };
  for (const caller of CALLERS) headers.set(caller, given[caller.name] ?? {});
}

/** What a client sees: of a stream that goes on its beginning only. */
async function ask({ caller }: Cell, { method, url, headers: sent, body }: Sent) {
  const base = runtimes.get(caller.mode)?.url;
  const given = headers.get(caller);
  const response = await fetch(`${base}${url}`, {
    method,
    headers: { ...sent, ...given },
    ...(body === undefined ? {} : { body }),
  });
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  if (!isStream) return { status: response.status, text: await response.text() };
  // Only a stream of a session's events has no end of its own.
  if (method === 'GET' && url.includes('/events/stream')) await response.body?.cancel();
  else await response.text();
  return { status: response.status, text: '' };
}

const request = (
  { operation, path, target }: Cell,
  of = target === 'absent' ? nothing : target === 'child of alice' ? childOf(names) : names,
) => toRequest(operation, path, of, ASKS[target]);
const ASKS: Partial<Record<Target, Parameters<typeof toRequest>[3]>> = {
  'shared state': 'shared',
  'child of alice': 'in session',
};
const labelOf = ({ operation, path, caller, target }: Cell) =>
  `${operation.operationId} ${path} as ${caller.name} (${caller.kind}, mode ${caller.mode}), ${target}`;
const SECRETS = (Object.keys(ABSENT) as (keyof typeof ABSENT)[]).filter(
  (name) => name !== 'versionId' && name !== 'appName',
);
/** The same words for what is there and what is not: without the names in them. */
const withoutNames = (text: string) =>
  // The name of a result holds that of its set.
  SECRETS.toReversed().reduce(
    (rest, name) => [childOf(names), names, ABSENT].reduce((left, of) => left.replaceAll(of[name], `<${name}>`), rest),
    text.replace(/version \d+/, 'version').replace(/\b(?:resp|conv)_[\w-]+/, '<id>'),
  );
/** Alice's names in an answer to somebody else that the request did not say. The version of an application is nobody's. */
const findLeaks = (text: string, sent = '') =>
  [names, childOf(names)].flatMap((of) =>
    SECRETS.filter((name) => name !== 'version' && text.includes(of[name]) && !sent.includes(of[name])),
  );

test('what is written here about operations is about ones that exist', () => {
  const ids = new Set(all.map(({ operationId }) => operationId));
  expect([...NAMED_OPERATIONS, ...OF_AGENT_ALONE].filter((id) => !ids.has(id))).toEqual([]);
});

/** The callers whose cells are columns of `docs/permissions.md`. */
const COLUMNS: Record<string, string> = {
  service: 'key',
  'key of alice': 'key of users',
  'key of the app': 'key of apps',
  'alice with all scopes': 'token',
};
const SAID: Partial<Record<Outcome, string>> = {
  'for keys': 'no',
  bound: 'no',
  foreign: 'absent',
  'absent for tokens': 'absent',
};

test('the table in the documents says the same', () => {
  const wrong = cells
    .filter(({ caller, target }) => caller.mode === 'key+jwt' && caller.name in COLUMNS && target.startsWith('of '))
    .flatMap((cell) => {
      const said = permissionOf(cell.operation, COLUMNS[cell.caller.name] ?? '');
      const expected = SAID[outcomeOf(cell)] ?? 'served';
      const isSame = expected === (['yes', 'own', 'open'].includes(said) ? 'served' : said);
      return isSame ? [] : [{ cell: labelOf(cell), said, expected }];
    });
  expect(wrong).toEqual([]);
});

describe('the matrix', () => {
  test('refuses as declared, says nothing of what is there, and changes nothing', async () => {
    const before = await snapshots.content();
    const wrong: unknown[] = [];
    const counts: Record<string, number> = {};
    for (const cell of cells) {
      const outcome = outcomeOf(cell);
      counts[outcome] = (counts[outcome] ?? 0) + 1;
      if (outcome === 'served') continue;
      const sent = request(cell);
      const answer = await ask(cell, sent);
      const expected = await refusalOf(cell, outcome);
      const isExpected =
        JSON.stringify(expected) === JSON.stringify({ status: answer.status, text: withoutNames(answer.text) });
      // What is expected of a foreign list is the answer to the same request, so that the comparison alone finds no leak.
      const leaks = findLeaks(answer.text, JSON.stringify(sent));
      if (!isExpected || leaks.length > 0) wrong.push({ cell: labelOf(cell), outcome, expected, answer, leaks });
    }
    expect(wrong).toEqual([]);
    expect(await snapshots.content()).toBe(before);
    console.log(`matrix: ${cells.length} cells`, counts);
  });

  test('serves as declared', async () => {
    // Others get rows late, of what was served before: spans.
    const content = () => snapshots.content(['sessions', 'events', 'invocations', 'tasks', 'artifacts', 'cronjobs']);
    const before = await content();
    const wrong: unknown[] = [];
    let isChanged = false;
    for (const cell of cells.filter((each) => outcomeOf(each) === 'served')) {
      const changes = cell.operation.method !== 'get';
      if (changes || isChanged) await snapshots.restore();
      isChanged = changes;
      const answer = await ask(cell, request(cell));
      // A stranger who is served, with a list for instance, reads no name that is alice's.
      const leaks = isStranger(cell.caller) ? findLeaks(answer.text.replaceAll(PARTNER, 'partner')) : [];
      if (leaks.length > 0 || !servedStatuses(cell).includes(answer.status))
        wrong.push({ cell: labelOf(cell), leaks, answer });
      if (isOfAgentAlone(cell) && (await content()) !== before) wrong.push({ cell: labelOf(cell), changed: true });
    }
    expect(wrong).toEqual([]);
  });
});

async function refusalOf(cell: Cell, outcome: Outcome) {
  const { operation, path, caller, target } = cell;
  const refusal = (status: number, detail: string) => {
    const body = exists[caller.mode].has(operation.operationId)
      ? operation.toRefusal?.({ status, detail }, undefined, { method: operation.method.toUpperCase(), path }).body
      : undefined;
    return { status, text: withoutNames(JSON.stringify(body ?? { detail })) };
  };
  if (outcome === 'unknown path' || outcome === 'absent for tokens')
    return refusal(404, 'Not Found. It is there for runtime keys; POST /run runs an agent with a token.');
  if (outcome === 'unauthenticated') return refusal(401, 'authentication required');
  if (outcome === 'for keys') return refusal(403, 'This operation is for runtime keys, not for tokens of users.');
  if (outcome === 'bound')
    return refusal(403, 'The credential is bound to users or applications, and this operation is about all.');
  if (outcome === 'lacks scope') {
    const scopes: readonly string[] = caller.scopes ?? ALL;
    const isAdmin = scopes.includes(operation.scope);
    const because = isAdmin ? 'keys with `app:` in front are the state of all users.' : 'this operation needs it.';
    return refusal(
      403,
      `The credential does not have the scope \`${isAdmin ? 'admin' : operation.scope}\`: ${because}`,
    );
  }
  if (outcome === 'lacks a further scope') {
    const [scope, because] = DEMANDED[operation.operationId] ?? [];
    return refusal(403, `The credential does not have the scope \`${scope}\`: ${because}`);
  }
  // Of what is another's a caller learns as much as of what does not exist.
  const { status, text } = await ask(
    cell,
    request(target === 'child of alice' ? cell : { ...cell, target: 'absent' }, nothing),
  );
  return { status, text: withoutNames(text) };
}

const isOfAgentAlone = ({ operation, target }: Pick<Cell, 'operation' | 'target'>) =>
  target === 'child of alice' && OF_AGENT_ALONE.has(operation.operationId);
/** Of an answer of MCP that is an error, and of a replay, which is one of the session above. Others: 403. */
const STATUSES_OF_CHILD: Record<string, number> = { callMcp: 200, callMcpApp: 200, replayInvocation: 400 };

function servedStatuses({ operation, target, caller }: Cell): number[] {
  const success = operation.success?.status ?? 200;
  if (operation.operationId.endsWith('Metadata') && operation.owner === 'open' && caller.mode === 'key') return [404];
  if (operation.operationId === runLive.operationId) return [426]; // no upgrade was requested: judged, and let through
  if (operation.operationId === 'finishConsent') return [404]; // no consent is on its way
  if (isOfAgentAlone({ operation, target })) return [STATUSES_OF_CHILD[operation.operationId] ?? 403];
  // It has neither a trace nor such a configuration.
  if (target === 'child of alice' && /^get(?:EventTrace(?:Legacy)?|A2aPushConfig)$/.test(operation.operationId))
    return [404];
  // What is over is neither cancelled nor followed.
  if (/^(?:cancel|(?:re)?subscribeTo)A2aTask$/.test(operation.operationId) && target !== 'absent') return [400];
  if (target !== 'absent') return [success];
  return [...(operation.errors?.[404] ? [404] : []), success, ...Object.keys(operation.bare ?? {}).map(Number)];
}
