import { describe, expect, onTestFinished, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser, openBrowser } from '../support/browser.ts';
import { openConsole } from '../support/console.ts';
import { startStrippingProxy } from '../support/stripping-proxy.ts';

/** The pages in a real browser behind a proxy that takes a path off, which the service never sees. */

const browserPath = findBrowser();
const PREFIX = '/below/agents';

describe.skipIf(!browserPath)('below a path', () => {
  test('the console loads, goes from view to view and comes back to each', async () => {
    const app = await startApp({ CONSOLE: 'true' });
    onTestFinished(() => app.close());
    const asked = { user_id: 'u1', session_id: 's1' };
    await app.post('/harness/invoke', { prompt: 'What is 17 * 23?', harness_name: 'demo', run_agent_request: asked });
    const proxy = await startStrippingProxy(app.url, PREFIX);
    onTestFinished(() => proxy.close());
    const browser = await openConsole(browserPath ?? '', new URL(proxy.url).origin);
    onTestFinished(() => browser.close());
    const { page, problems } = browser;
    await page.goto(`${proxy.url}/console`);
    await page.waitForURL(`${proxy.url}/console/sessions**`);
    await page.goto(`${proxy.url}/console/sessions/harness_agent/u1/s1`);
    await page.getByText('What is 17 * 23?').first().waitFor();
    await page.getByRole('link', { name: 'Tasks' }).first().click();
    await page.waitForURL(`${proxy.url}/console/tasks**`);
    await page.reload();
    await page.getByRole('link', { name: 'API' }).click();
    await page.waitForURL(`${proxy.url}/docs`);
    await page.getByText('Agent Runtime HTTP Interface').first().waitFor();
    expect(problems).toEqual([]);
  });

  test('the development UI calls the API there', async () => {
    // The address is said before the start, so the proxy is there first.
    const proxy = await startStrippingProxy(() => app.url, PREFIX);
    onTestFinished(() => proxy.close());
    const app: TestApp = await startApp({ PUBLIC_URL: proxy.url });
    onTestFinished(() => app.close());
    const browser = await openBrowser(browserPath ?? '', new URL(proxy.url).origin);
    onTestFinished(() => browser.close());
    const { page, problems } = browser;
    await page.goto(`${proxy.url}/dev-ui?app=harness_agent&userId=user`);
    const prompt = page.getByPlaceholder('Type a message');
    await prompt.fill('What is 17 * 23? Use the calculator.');
    await prompt.press('Enter');
    await page.getByText('391').first().waitFor();
    expect(problems).toEqual([]);
  });
});
