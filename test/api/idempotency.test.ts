import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const user = '/apps/harness_agent/users/u/sessions';
const artifacts = `${user}/s/artifacts`;
const save = (key: string, text: string) =>
  app.post(artifacts, { filename: 'f', artifact: { text } }, { 'idempotency-key': key });
const versions = async () => {
  for (let version = 0; ; version++) {
    if ((await app.get(`${artifacts}/f/versions/${version}/metadata`)).status === 404) return version;
  }
};

describe('a request with an Idempotency-Key', () => {
  test('is done once: the retry gets the same bytes', async () => {
    const first = await save('k1', 'one');
    const again = await save('k1', 'one');
    expect([again.status, again.text]).toEqual([200, first.text]);
    expect(await versions()).toBe(1);
  });

  test('20 at once are one', async () => {
    const before = await versions();
    const answers = await Promise.all(Array.from({ length: 20 }, () => save('k2', 'two')));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(await versions()).toBe(before + 1);
  });

  test('with another body is 422 and does nothing', async () => {
    await save('k3', 'three');
    const before = await versions();
    const { status, body } = await save('k3', 'other');
    expect([status, body]).toMatchObject([422, { detail: [{ loc: ['header', 'idempotency-key'] }] }]);
    expect(await versions()).toBe(before);
  });

  test('that failed leaves its key free', async () => {
    const headers = { 'idempotency-key': 'k4' };
    const failed = await app.post(artifacts, { filename: 'f', artifact: {} }, headers);
    expect(failed.status).toBe(400);
    const { status } = await app.post(artifacts, { filename: 'f', artifact: { text: 'x' } }, headers);
    expect(status).toBe(200);
  });

  test('creates one session without an id, however often it is sent', async () => {
    const headers = { 'idempotency-key': 'k5' };
    const first = await app.post(user, undefined, headers);
    expect((await app.post(user, undefined, headers)).text).toBe(first.text);
    expect((await app.get(user)).body).toHaveLength(1);
  });

  test("is kept with the user that it is about, if any: a key of one user is not another's", async () => {
    const headers = { 'idempotency-key': 'k6' };
    const mine = await app.post('/apps/harness_agent/users/erin/sessions', undefined, headers);
    const other = await app.post('/apps/harness_agent/users/frank/sessions', undefined, headers);
    expect([mine.status, other.status]).toEqual([200, 200]);
    await app.post('/dev/apps/harness_agent/eval-sets', { evalSet: { eval_set_id: 'kept' } }, headers);
    const database = new Client({ connectionString: app.databaseUrl });
    await database.connect();
    const { rows } = await database.query(
      `select app_name, user_id, scope, response_body from idempotency_keys where key = 'k6' order by user_id desc`,
    );
    await database.end();
    expect(rows.slice(0, 2)).toEqual([
      { app_name: 'harness_agent', user_id: 'frank', scope: 'createSession anonymous', response_body: other.text },
      { app_name: 'harness_agent', user_id: 'erin', scope: 'createSession anonymous', response_body: mine.text },
    ]);
    expect(rows.slice(2)).toMatchObject([{ app_name: 'harness_agent', user_id: '', scope: 'createEvalSet anonymous' }]);
  });

  test('whose key is empty or too long is refused', async () => {
    for (const key of ['', 'x'.repeat(256)]) {
      const { status, body } = await app.post(user, undefined, { 'idempotency-key': key });
      expect([status, body]).toMatchObject([422, { detail: [{ loc: ['header', 'idempotency-key'] }] }]);
    }
  });
});
