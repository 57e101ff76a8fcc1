import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const add = (evalSetId: string, body: unknown) =>
  app.post(`/dev/apps/harness_agent/eval-sets/${evalSetId}/add-session`, body);
const list = (evalSetId: string) => app.get(`/dev/apps/harness_agent/eval_sets/${evalSetId}/evals`);
const prompt = (sessionId: string) =>
  app.post('/harness/invoke', {
    prompt: 'What is 2 + 3? Use the calculator.',
    harness_name: 'h',
    run_agent_request: { user_id: 'u', session_id: sessionId },
  });

describe('add a session, list the cases', () => {
  test('the set is created, the answer is null, the list is sorted', async () => {
    await prompt('one');
    for (const evalId of ['b', 'a-1', 'B', 'é']) {
      const { status, text } = await add('set_1', { evalId, sessionId: 'one', userId: 'u' });
      expect([status, text]).toEqual([200, 'null']);
    }
    const { status, body } = await list('set_1');
    expect([status, body]).toEqual([200, ['B', 'a-1', 'b', 'é']]);
  });

  test('snake_case members are the same', async () => {
    await prompt('snake');
    expect((await add('set_snake', { eval_id: 'x', session_id: 'snake', user_id: 'u' })).status).toBe(200);
    expect((await list('set_snake')).body).toEqual(['x']);
  });

  test('an absent session is 404 and leaves no set, a duplicate is 409, an absent set is 404', async () => {
    const absent = await add('never', { evalId: 'x', sessionId: 'nope', userId: 'u' });
    expect([absent.status, absent.body]).toEqual([404, { detail: 'Session not found: nope' }]);
    const none = await list('never');
    expect([none.status, none.body]).toEqual([404, { detail: 'Eval set `never` not found.' }]);
    await prompt('dup');
    await add('dups', { evalId: 'x', sessionId: 'dup', userId: 'u' });
    const again = await add('dups', { evalId: 'x', sessionId: 'dup', userId: 'u' });
    expect([again.status, again.body]).toEqual([409, { detail: 'Eval id `x` already exists in `dups` eval set.' }]);
  });

  test('only the spellings of the specification exist', async () => {
    expect((await app.get('/dev/apps/harness_agent/eval-sets/set_1/evals')).status).toBe(404);
  });

  test('all missing members are listed', async () => {
    const { status, body } = await add('set_1', {});
    expect([status, body]).toEqual([
      422,
      {
        detail: ['evalId', 'sessionId', 'userId'].map((name) => ({
          type: 'missing',
          loc: ['body', name],
          msg: 'Field required',
          input: {},
        })),
      },
    ]);
  });
});
