import { describe, expect, test } from 'vitest';
import { sql } from 'drizzle-orm';
import { ConflictError, NotFoundError } from '../../src/core/errors.ts';
import { addSession } from '../../src/features/evals/cases/add-sessions.ts';
import { countEvaluations, deleteEvaluations } from '../../src/features/evals/erase-store.ts';
import { deleteEvalSet, insertEvalSet } from '../../src/features/evals/sets/eval-set-store.ts';
import { listEvalCaseIds } from '../../src/features/evals/cases/eval-case-store.ts';
import type { Part } from '../../src/core/content.ts';
import type { NewEvent } from '../../src/core/event.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool();
const payloadOf = async (appName: string) => {
  const { rows } = await store.pool.db.execute<{ payload: Record<string, unknown> }>(
    sql`select payload from eval_case_versions where app_name = ${appName}`,
  );
  return rows[0]?.payload;
};
const agents = (parts: Part[], invocationId = 'e-1'): NewEvent =>
  textEvent('', { author: 'helper', invocationId, content: { role: 'model', parts } });

describe('add session', () => {
  test('turns the conversation into turns: question, tool use, final answer', async () => {
    const key = newKey();
    const call = { functionCall: { id: 'c', name: 'add', args: { a: 1 } } };
    const response = { functionResponse: { id: 'c', name: 'add', response: { result: 2 } } };
    await insertSession(store.pool.db, key, { start: 1, changed: 1, 'user:shared': 1 }, [
      textEvent('q1', { timestamp: 5 }),
      textEvent('', { invocationId: 'p-1', content: undefined, actions: { stateDelta: { changed: 2 } } }),
      agents([{ text: 'let me see' }, call]),
      agents([response]),
      agents([{ text: 'it is 2' }]),
      textEvent('q2', { invocationId: 'e-2', timestamp: 9 }),
    ]);
    await addSession(
      store.pool.db,
      key,
      { appName: key.appName, evalSetId: 'set' },
      { evalId: 'case-1', instructions: [] },
    );
    expect(await payloadOf(key.appName)).toEqual({
      evalId: 'case-1',
      creationTimestamp: expect.any(Number),
      sessionInput: { appName: key.appName, userId: key.userId, state: { start: 1 } },
      conversation: [
        {
          invocationId: 'e-1',
          userContent: { role: 'user', parts: [{ text: 'q1' }] },
          finalResponse: { role: 'model', parts: [{ text: 'it is 2' }] },
          creationTimestamp: 5,
          intermediateData: {
            invocationEvents: [
              { author: 'helper', content: { role: 'model', parts: [{ text: 'let me see' }, call] } },
              { author: 'helper', content: { role: 'model', parts: [response] } },
            ],
          },
        },
        {
          invocationId: 'e-2',
          userContent: { role: 'user', parts: [{ text: 'q2' }] },
          creationTimestamp: 9,
          intermediateData: { invocationEvents: [] },
        },
      ],
    });
  });

  test('an absent session leaves no empty set behind, a duplicate is a conflict', async () => {
    const key = newKey();
    await expect(
      addSession(store.pool.db, key, { appName: key.appName, evalSetId: 'set' }, { evalId: 'c', instructions: [] }),
    ).rejects.toEqual(new NotFoundError(`Session not found: ${key.sessionId}`));
    expect(await listEvalCaseIds(store.pool.db, { appName: key.appName, evalSetId: 'set' })).toBeUndefined();
    await insertSession(store.pool.db, key, {}, []);
    await addSession(store.pool.db, key, { appName: key.appName, evalSetId: 'set' }, { evalId: 'c', instructions: [] });
    await expect(
      addSession(store.pool.db, key, { appName: key.appName, evalSetId: 'set' }, { evalId: 'c', instructions: [] }),
    ).rejects.toEqual(new ConflictError('Eval id `c` already exists in `set` eval set.'));
  });

  test('32 at once into one new set: none is lost, and the list is sorted by code point in one statement', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, []);
    const ids = Array.from({ length: 32 }, (_, n) => `${n % 2 ? 'Z' : 'a'}${n}`).concat('é', '_', '10', '9');
    await Promise.all(
      ids.map((id) =>
        addSession(store.pool.db, key, { appName: key.appName, evalSetId: 'new' }, { evalId: id, instructions: [] }),
      ),
    );
    const statements = await statementsOf(async () => {
      expect(await listEvalCaseIds(store.pool.db, { appName: key.appName, evalSetId: 'new' })).toEqual(ids.toSorted());
    });
    expect(statements).toHaveLength(1);
  });
});

test('an erasure finds what a user wrote into a set that was deleted, and nobody else’s', async () => {
  const { appName, userId } = newKey();
  const evalCase = { evalId: 'c', conversation: [{ userContent: { role: 'user', parts: [{ text: 'mine' }] } }] };
  for (const ownerId of [userId, 'somebody']) {
    const key = { appName, evalSetId: `of-${ownerId}`, ownerId };
    await insertEvalSet(store.pool.db, key, { eval_cases: [evalCase] });
    await deleteEvalSet(store.pool.db, key);
  }
  expect(await countEvaluations(store.pool.db, { appName, userId })).toMatchObject({ eval_case_versions: 1 });
  await store.pool.transaction((tx) => deleteEvaluations(tx, { appName, userId }));
  const { rows } = await store.pool.db.execute(
    sql`select owner_id from eval_case_versions where app_name = ${appName}`,
  );
  expect(rows).toEqual([{ owner_id: 'somebody' }]);
});
