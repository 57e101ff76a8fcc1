import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { findArtifactVersionText, saveArtifactVersion } from '../../src/conversation/artifacts/artifact-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { listEvents } from '../../src/conversation/sessions/event-store.ts';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import { listSessions } from '../../src/conversation/sessions/session-list.ts';
import { findSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { claimQueued, claimSession, enqueueInvocation } from '../../src/invocations/lock-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool(1);

const HEAD = `-- The hottest statements as they are sent, to read and to review. Written by npm run docs:statements.
-- A call of a function is explained in its file; PostgreSQL keeps the plans of what it does, behind a pooler too.`;

/** The text with every line but the first one indented alike. */
const formatText = (text: string) => `${text.trim().replaceAll(/\s*\n\s*/g, '\n  ')};`;

/** The file of the function that a statement calls, as a comment. */
function describeCall(text: string): string {
  const [, name] = /^select \* from (\w+)\(/.exec(text) ?? [];
  if (name === undefined) return '';
  const file = [name, 'claim_session'].find((each) =>
    existsSync(new URL(`../../migrations/repeatable/functions/${each}.sql`, import.meta.url)),
  );
  return ` See migrations/repeatable/functions/${file}.sql.`;
}

test('docs/statements.sql has the hottest statements as they are sent; npm run docs:statements writes it', async () => {
  const { db } = store.pool;
  const key = newKey();
  const artifact = { ...key, artifactName: 'a.txt' };
  const saved = { part: { text: 'a' }, bytes: undefined, mimeType: undefined };
  const lease = { key, invocationId: 'first', token: randomUUID(), durationMs: 60_000 };
  const queued = { ...lease, invocationId: 'second', token: randomUUID() };
  const work: [name: string, work: () => Promise<unknown>][] = [
    ['Create a session', () => insertSession(db, key, { a: 1 }, [])],
    ['Claim a session, which begins an invocation', () => claimSession(db, lease, [textEvent('prompt')], true)],
    ['The history that an invocation goes on from', () => findHistory(db, key)],
    ['Append an event', () => appendEvents(db, key, [textEvent('call')], { leaseToken: lease.token })],
    ['Wait for a busy session', () => enqueueInvocation(db, queued, 5)],
    ['Finish an invocation', () => finishInvocation(db, lease, [textEvent('answer')], { status: 'succeeded' })],
    ['Claim a session for an invocation that waited', () => claimQueued(db, queued, [textEvent('prompt')])],
    ['Get a session', () => findSession(db, key)],
    ['A page of the list of sessions', () => listSessions(db, key.appName, key.userId, { limit: 50 })],
    ['A page of events', () => listEvents(db, key, 0, 100)],
    ['Save a version of an artifact', () => saveArtifactVersion(db, artifact, saved, {})],
    ['The metadata of a version of an artifact', () => findArtifactVersionText(db, artifact, 0)],
  ];
  const parts = [HEAD];
  for (const [name, run] of work) {
    const texts = await statementsOf(run);
    parts.push(`-- ${name}.${describeCall(texts[0] ?? '')}\n${texts.map(formatText).join('\n')}`);
  }
  await expect(`${parts.join('\n\n')}\n`).toMatchFileSnapshot('../../docs/statements.sql');
});
