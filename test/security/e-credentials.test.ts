import { expect, onTestFinished, test } from 'vitest';
import { createLoginLimit } from '../../src/platform/http/limits/login-limit.ts';
import { startApp } from '../support/app.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';

/** Wrong tokens from an address that others share: an office, a mobile network, a proxy that is not listed. */

const isWrong = [...Array.from({ length: 30 }, () => 401), ...Array.from({ length: 10 }, () => 429)];

test('A5: wrong tokens refuse no valid one from the same address', async () => {
  const tokens = await startTokenIssuer();
  const app = await startApp({ ...tokens.environment, DEV_UI: 'false' });
  onTestFinished(async () => {
    await app.close();
    await tokens.close();
  });
  const { authorization = '' } = await tokens.headersOf('mallory');
  /** A token that is right but for its signature, which costs a verification. */
  const forged = (index: number) => ({ authorization: `${authorization.slice(0, -10)}${1_000_000_000 + index}` });
  const statusOf = async (headers: Record<string, string>) => (await app.get('/list-apps', headers)).status;

  const found = [];
  for (let index = 0; index < 40; index += 1) found.push(await statusOf(forged(index)));
  expect(found).toEqual(isWrong);
  expect(await statusOf(await tokens.headersOf('alice'))).toBe(200);
  const wrong = Array.from({ length: 50 }, (_, index) => statusOf(forged(100 + index)));
  const valid = await Promise.all(['ann', 'bob', 'carol'].map(async (user) => statusOf(await tokens.headersOf(user))));
  expect(valid).toEqual([200, 200, 200]);
  expect(new Set(await Promise.all(wrong))).toEqual(new Set([429]));
});

test('a token has one spelling', async () => {
  const tokens = await startTokenIssuer();
  const app = await startApp({ ...tokens.environment, DEV_UI: 'false' });
  onTestFinished(async () => {
    await app.close();
    await tokens.close();
  });
  const { authorization = '' } = await tokens.headersOf('ann');
  // The last of the 86 characters of an ES256 signature has four bits to spare.
  const last = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const other = last[last.indexOf(authorization.at(-1) ?? '') + 1] ?? '';
  const found = [];
  for (const spelling of [
    authorization,
    authorization.replace('Bearer', 'bearer '),
    `${authorization}=`,
    `${authorization}==`,
    authorization.slice(0, -1) + other,
  ])
    found.push((await app.get('/list-apps', { authorization: spelling })).status);
  expect(found).toEqual([200, 200, 401, 401, 401]);
});

test('A5: what a noisy address has checked is bounded, whatever it sends, and another is not behind it', async () => {
  const until = performance.now() + 60_000;
  const limit = createLoginLimit(5, { take: async () => ({ isOver: true, until }) });
  const login = (name: string, credential: string) => ({ credential, names: [`address ${name}`] });
  for (const name of ['a', 'b']) await expect(limit.failed(login(name, 'x'))).rejects.toThrow('wrong credentials');
  let atOnce = 0;
  let most = 0;
  const order: string[] = [];
  const check = async (name: string, credential: string) => {
    const leave = await limit.admit(login(name, credential));
    most = Math.max(most, (atOnce += 1));
    order.push(name);
    await new Promise((resolve) => setImmediate(resolve));
    atOnce -= 1;
    leave();
  };
  const flood = Promise.allSettled(Array.from({ length: 500 }, (_, index) => check('a', `wrong ${index}`)));
  await check('b', 'right');
  await check('c', 'right');
  // Those of `a` hold the places and one turn more at most.
  expect(order.slice(0, 12)).toContain('b');
  const refused = (await flood).filter(({ status }) => status === 'rejected');
  expect([refused.length, most]).toEqual([400, 4]);
});
