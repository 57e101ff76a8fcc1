import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { type LoginIssuer, startLoginIssuer } from '../support/login-issuer.ts';

/** Who sees what in the console: a key, two users and an admin of an issuer. */

const browserPath = findBrowser();
const KEY = 'a-key-of-32-characters-xxxxxxxxxx';

describe.skipIf(!browserPath)('a key', () => {
  test('is asked for, refused where it is wrong, kept for the tab, and gone with a logout', async () => {
    const app = await startApp({ RUNTIME_API_KEYS: KEY, CONSOLE: 'true', DEV_UI: 'false' });
    const browser = await openConsole(browserPath ?? '', app.url);
    const { page, problems } = browser;
    try {
      const headers = { authorization: `Bearer ${KEY}` };
      await app.post('/apps/harness_agent/users/u1/sessions', { sessionId: 'secret-session' }, headers);
      await page.goto(`${app.url}/console/sessions`);
      expect(await browser.look('login')).toEqual([]);
      await page.getByLabel('Key').fill('a-wrong-key-of-32-characters-yyy');
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.getByText('The service does not accept this credential.').waitFor();
      expect(problems.every((problem) => problem.includes('401'))).toBe(true);
      problems.length = 0;
      await page.getByLabel('Key').fill(KEY);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.getByRole('link', { name: 'secret-session' }).waitFor();
      await page.getByRole('link', { name: 'Operations' }).click();
      const key = page.getByRole('region', { name: 'Keys' }).getByRole('row', { name: /of RUNTIME_API_KEYS.*admin/ });
      await key.waitFor();
      expect(await page.content()).not.toContain(KEY);
      const stored = (where: string) => page.evaluate(`JSON.stringify({ ...${where} })`);
      expect(await stored('localStorage')).not.toContain(KEY);
      await page.reload();
      await key.waitFor();
      const other = await page.context().newPage();
      await other.goto(`${app.url}/console/sessions`);
      await other.getByLabel('Key').waitFor();
      await other.close();
      await page.getByRole('button', { name: 'Log out' }).click();
      await page.getByLabel('Key').waitFor();
      expect(await stored('sessionStorage')).not.toContain(KEY);
      await page.reload();
      await page.getByLabel('Key').waitFor();
      expect(problems).toEqual([]);
    } finally {
      await browser.close();
      await app.close();
    }
  });
});

describe.skipIf(!browserPath)('keys beside two issuers', () => {
  test('an operator pastes a key, and a user logs in at the own issuer, under a name of its own', async () => {
    const [ours, partner] = [await startLoginIssuer(), await startLoginIssuer()];
    const issuers = [
      { issuer: ours.url, audience: 'runtime', clientId: 'console' },
      { issuer: partner.url, audience: 'runtime', clientId: 'console', userPrefix: 'partner:' },
    ];
    const app = await startApp({
      RUNTIME_API_KEYS: KEY,
      JWT_ISSUERS: JSON.stringify(issuers),
      CONSOLE: 'true',
      DEV_UI: 'false',
    });
    const browser = await openConsole(browserPath ?? '', app.url);
    const { page, problems } = browser;
    try {
      const headers = { authorization: `Bearer ${KEY}` };
      for (const user of ['u1', 'partner:u1'])
        await app.post(`/apps/harness_agent/users/${user}/sessions`, { sessionId: `of-${user}` }, headers);
      await page.goto(`${app.url}/console/sessions`);
      expect(await page.getByRole('button', { name: /^Log in at 127/ }).count()).toBe(2);
      await page.getByLabel('Key or token').fill(KEY);
      await page.getByRole('button', { name: 'Log in', exact: true }).click();
      await page.getByRole('link', { name: 'of-partner:u1' }).waitFor();
      await page.getByRole('button', { name: 'Log out' }).click();
      await page.getByRole('button', { name: `Log in at ${new URL(partner.url).host}` }).click();
      await page.getByTitle('The user of your token').filter({ hasText: 'partner:u1' }).waitFor();
      await page.getByRole('link', { name: 'of-partner:u1' }).waitFor();
      expect(await page.getByRole('row').count()).toBe(2);
      expect(problems.filter((problem) => !problem.startsWith(`left: ${partner.url}/`))).toEqual([]);
    } finally {
      await browser.close();
      await app.close();
      await ours.close();
      await partner.close();
    }
  });
});

describe.skipIf(!browserPath)('an issuer', () => {
  let issuer: LoginIssuer;
  let app: TestApp;
  beforeAll(async () => {
    issuer = await startLoginIssuer();
    app = await startApp({
      JWT_ISSUER: issuer.url,
      JWT_AUDIENCE: 'runtime',
      JWT_SCOPE_CLAIM: 'scope',
      CONSOLE: 'true',
      CONSOLE_CLIENT_ID: 'console',
      DEV_UI: 'false',
    });
  });
  afterAll(async () => {
    await app?.close();
    await issuer?.close();
  });

  /** Makes a session of a user. */
  const make = async (user: string) => {
    const state = { note: `secret of ${user}` };
    const headers = await issuer.headersOf(user, 'invoke read write');
    const path = `/apps/harness_agent/users/${user}/sessions`;
    expect((await app.post(path, { sessionId: `of-${user}`, state }, headers)).status).toBe(200);
  };

  /** Logs a user in, and goes on as it. */
  const as = async (user: string, scopes: string, path: string, use: (browser: ConsolePage) => Promise<void>) => {
    Object.assign(issuer.next, { user, scopes });
    const browser = await openConsole(browserPath ?? '', app.url);
    try {
      await browser.page.goto(`${app.url}/console/${path}`);
      await browser.page.getByRole('button', { name: /^Log in at 127/ }).click();
      await browser.page.waitForURL(`${app.url}/console/${path}**`);
      await use(browser);
      const others = browser.problems.filter((problem) => !problem.startsWith(`left: ${issuer.url}/`));
      expect(others.filter((problem) => !problem.includes('403'))).toEqual([]);
    } finally {
      await browser.close();
    }
  };
  const USER = 'invoke read write';

  test('each user has the own sessions, and comes back to where it was', async () => {
    for (const user of ['u1', 'u2']) {
      const path = `sessions/harness_agent/${user}/of-${user}`;
      await as(user, USER, 'sessions', async ({ page }) => {
        await page.getByText(`No session of ${user} fits.`).waitFor();
      });
      await make(user);
      await as(user, USER, `${path}?tab=state`, async ({ page }) => {
        await page.getByText(`secret of ${user}`).waitFor();
        await page.getByRole('link', { name: 'Sessions', exact: true }).click();
        await page.getByRole('link', { name: `of-${user}` }).waitFor();
        expect(await page.getByRole('row').count()).toBe(2);
      });
    }
    await as('u1', USER, 'sessions/harness_agent/u2/of-u2?tab=state', async ({ page, problems }) => {
      await page.getByRole('alert').first().waitFor();
      expect(await page.getByText('secret of').count()).toBe(0);
      expect(problems.join(' ')).toMatch(/40[34]/);
      problems.length = 0;
    });
  });

  test('a user does not see the use of all, an admin does', async () => {
    await as('u1', USER, 'usage?of=app', async ({ page }) => {
      await page.getByRole('note').filter({ hasText: 'admin' }).first().waitFor();
    });
    await as('u1', USER, 'operations', async ({ page }) => {
      await expect.poll(() => page.getByText('The credential does not have the scope `admin`').count()).toBe(3);
    });
    await as('boss', `${USER} admin`, 'operations', async ({ page }) => {
      await page.getByRole('region', { name: 'Queues' }).first().waitFor();
      await page.getByText('No entry fits.').waitFor();
    });
    await as('boss', `${USER} admin`, 'usage?of=app', async ({ page }) => {
      await page.getByText('Nothing was used in this time.').waitFor();
      await page.getByText('No budget is set.').waitFor();
      expect((await page.getByRole('alert').count()) + (await page.getByRole('note').count())).toBe(0);
    });
  });

  test('a token that the issuer does not give is said', async () => {
    const browser = await openConsole(browserPath ?? '', app.url);
    try {
      await browser.page.goto(`${app.url}/console/`);
      await browser.page.route(`${issuer.url}/token`, (route) =>
        route.fulfill({
          status: 400,
          headers: { 'access-control-allow-origin': '*' },
          json: { error: 'invalid_grant' },
        }),
      );
      await browser.page.getByRole('button', { name: /^Log in at/ }).click();
      await browser.page.getByText('The issuer did not log you in').waitFor();
      expect(await browser.page.getByRole('navigation').count()).toBe(0);
    } finally {
      await browser.close();
    }
  });
});
