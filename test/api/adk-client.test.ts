import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeAll, describe, expect, test } from 'vitest';
import type { ArtifactVersion } from '../../src/conversation/artifacts/artifact.ts';
import type { Event } from '../../src/core/event.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, testApp } from '../support/app.ts';
import { ADK_FILES } from '../support/front-ends.ts';

/** The ADK JavaScript API client, unchanged, as its own users call it. Nobody here wrote it. */

interface Session {
  id: string;
  appName: string;
  userId: string;
  state: Record<string, unknown>;
  events: Event[];
}
type SessionParams = { appName: string; userId: string; sessionId: string };
type ArtifactParams = SessionParams & { artifactName: string };

interface AdkApiClient {
  listApps(): Promise<string[]>;
  getSession(params: SessionParams): Promise<Session>;
  createSession(params: Omit<SessionParams, 'sessionId'> & { sessionId?: string; state?: object }): Promise<Session>;
  deleteSession(params: SessionParams): Promise<void>;
  listAllSessions(params: { userId: string }): Promise<Session[]>;
  listSessions(params: Omit<SessionParams, 'sessionId'>): Promise<Session[]>;
  runAsync(
    params: SessionParams & { newMessage: unknown; streaming?: boolean; stateDelta?: object },
  ): AsyncGenerator<Event>;
  listArtifacts(params: SessionParams): Promise<string[]>;
  loadArtifact(params: ArtifactParams & { version?: number }): Promise<unknown>;
  listArtifactVersions(params: ArtifactParams): Promise<number[]>;
  deleteArtifact(params: ArtifactParams): Promise<void>;
}

/** Its one import of a package. */
const GENAI = `data:text/javascript,${encodeURIComponent(
  "export const createUserContent = (text) => ({ role: 'user', parts: [{ text }] });",
)}`;

async function loadClient(backendUrl: string): Promise<AdkApiClient> {
  const file = join(ADK_FILES, 'dist/esm/server/adk_api_client.js');
  const hooks = registerHooks({
    resolve: (specifier, context, next) =>
      specifier === '@google/genai' ? { url: GENAI, shortCircuit: true } : next(specifier, context),
  });
  const loaded = (await import(/* @vite-ignore */ pathToFileURL(file).href)) as {
    AdkApiClient: new (config: { backendUrl: string }) => AdkApiClient;
  };
  hooks.deregister();
  return new loaded.AdkApiClient({ backendUrl });
}

const app = testApp();
const appName = 'harness_agent';
let client: AdkApiClient;
beforeAll(async () => {
  client = await loadClient(app.url);
});

async function collect(events: AsyncGenerator<Event>): Promise<Event[]> {
  const all: Event[] = [];
  for await (const event of events) all.push(event);
  return all;
}
const textOf = ({ content }: Event) => content?.parts?.map(({ text }) => text ?? '').join('') ?? '';

describe('applications and sessions', () => {
  test('are listed, created with and without an id, read and deleted', async () => {
    expect(await client.listApps()).toEqual([appName]);
    const chosen = await client.createSession({ appName, userId: 'u', sessionId: 'chosen', state: { a: 1 } });
    expect(chosen).toMatchObject({ id: 'chosen', appName, userId: 'u', state: { a: 1 }, events: [] });
    const made = await client.createSession({ appName, userId: 'u' });
    expect(made.id).toMatch(/^[0-9a-f-]{36}$/);
    expect(await client.getSession({ appName, userId: 'u', sessionId: 'chosen' })).toEqual(chosen);
    const listed = await client.listSessions({ appName, userId: 'u' });
    expect(listed.map(({ id }) => id)).toEqual([made.id, 'chosen']);
    expect(await client.listAllSessions({ userId: 'u' })).toEqual(listed);
    expect(await client.deleteSession({ appName, userId: 'u', sessionId: 'chosen' })).toBeNull();
    expect((await client.listSessions({ appName, userId: 'u' })).map(({ id }) => id)).toEqual([made.id]);
  });

  test('a refusal is an error with its status', async () => {
    await expect(client.getSession({ appName, userId: 'u', sessionId: 'nope' })).rejects.toThrow(
      'Request failed with status 404',
    );
    await client.createSession({ appName, userId: 'u', sessionId: 'taken' });
    await expect(client.createSession({ appName, userId: 'u', sessionId: 'taken' })).rejects.toThrow(
      'Request failed with status 409',
    );
  });
});

describe('runs', () => {
  const session = { appName, userId: 'runner', sessionId: 's' };

  test('yield the events of the agent, whole or in pieces', async () => {
    await client.createSession(session);
    const whole = await collect(
      client.runAsync({ ...session, newMessage: 'What is 2 + 3? Use the calculator.', stateDelta: { asked: true } }),
    );
    expect(whole.map(({ author, partial }) => [author, partial])).toEqual(whole.map(() => [appName, undefined]));
    expect(whole[0]?.content?.parts?.[0]?.functionCall).toMatchObject({ name: 'calculator' });
    expect(textOf(whole.at(-1) ?? {})).toBe('The tool `calculator` answered: 5');

    const newMessage = { role: 'user', parts: [{ text: 'Hello there.' }] };
    const pieces = await collect(client.runAsync({ ...session, newMessage, streaming: true }));
    const partial = pieces.filter((event) => event.partial === true);
    expect(partial.length).toBeGreaterThan(1);
    expect(partial.map(textOf).join('')).toBe(textOf(pieces.at(-1) ?? {}));
    // A command line that prints every event whose `partial` is not false shows the answer once.
    expect(
      pieces
        .filter((event) => event.partial !== false)
        .map(textOf)
        .join(''),
    ).toBe(textOf(pieces.at(-1) ?? {}));

    const stored = await client.getSession(session);
    expect(stored.state).toEqual({ asked: true });
    expect(stored.events.map(({ author }) => author).filter((author) => author === 'user')).toHaveLength(2);
  });

  test('of a session that does not exist are an error with its status', async () => {
    const events = client.runAsync({ ...session, sessionId: 'nope', newMessage: 'hi' });
    await expect(collect(events)).rejects.toThrow('Request failed with status 404');
  });
});

test('a run that fails is an error with its sentence, after the events so far', async () => {
  const failing = await startApp({}, { agents: hostScript([new Error('secret')]) });
  const failingClient = await loadClient(failing.url);
  const session = { appName, userId: 'u', sessionId: 's' };
  await failingClient.createSession(session);
  const events: Event[] = [];
  const read = async () => {
    for await (const event of failingClient.runAsync({ ...session, newMessage: 'hi' })) events.push(event);
  };
  await expect(read()).rejects.toThrow('The model `scripted` (scripted) failed unexpectedly.');
  expect(events.map(({ errorCode }) => errorCode)).toEqual(['model_failed']);
  await failing.close();
});

describe('artifacts', () => {
  test('are listed, loaded by version, and deleted', async () => {
    const session = { appName, userId: 'u', sessionId: 'files' };
    const artifact = { ...session, artifactName: 'dir/user note.txt' };
    for (const text of ['one', 'two']) {
      const { body } = await app.post(`/apps/${appName}/users/u/sessions/files/artifacts`, {
        filename: artifact.artifactName,
        artifact: { text },
      });
      expect((body as ArtifactVersion).mimeType).toBe('text/plain');
    }
    expect(await client.listArtifacts(session)).toEqual([artifact.artifactName]);
    expect(await client.listArtifactVersions(artifact)).toEqual([0, 1]);
    expect(await client.loadArtifact(artifact)).toEqual({ text: 'two' });
    expect(await client.loadArtifact({ ...artifact, version: 0 })).toEqual({ text: 'one' });
    await expect(client.loadArtifact({ ...artifact, version: 7 })).rejects.toThrow('Request failed with status 404');
    expect(await client.deleteArtifact(artifact)).toBeNull();
    expect(await client.listArtifacts(session)).toEqual([]);
  });
});

test('every method of the client was called above', async () => {
  const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(client)).filter((name) => name !== 'constructor');
  expect(methods.toSorted()).toEqual(
    [
      'createSession',
      'deleteArtifact',
      'deleteSession',
      'fetch',
      'getSession',
      'listAllSessions',
      'listApps',
      'listArtifactVersions',
      'listArtifacts',
      'listSessions',
      'loadArtifact',
      'runAsync',
    ].toSorted(),
  );
});
