import { existsSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll } from 'vitest';
import { MINUTE } from './patience.ts';

/** Where Chromium and its kin are installed; Debian's first. */
const PLACES = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/usr/bin/google-chrome-stable',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  '/Applications/Chromium.app/Contents/MacOS/Chromium',
  'C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe',
];
const SCREENSHOTS = fileURLToPath(new URL('../e2e/screenshots/', import.meta.url));

/** The browser of this machine, `CHROMIUM_PATH` before all others; `undefined` where there is none. */
export const findBrowser = (): string | undefined =>
  [process.env['CHROMIUM_PATH'], ...PLACES].find((path) => path && existsSync(path));

/** A page with cookies and storage of its own. */
export interface BrowserPage {
  page: Page;
  /** What went wrong so far: console errors, failed requests, requests to other servers. */
  problems: string[];
  /** Writes `test/e2e/screenshots/<number>-<name>.png`. */
  screenshot(name: string): Promise<void>;
  close(): Promise<void>;
}

/** The browser of this test file: a start takes a second. */
let running: Promise<Browser> | undefined;
afterAll(async () => (await running)?.close());

function launch(executablePath: string): Promise<Browser> {
  // As root Chromium starts without its sandbox only.
  const sandbox = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  // A microphone that beeps, for the call button.
  const media = ['--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'];
  return chromium.launch({ executablePath, args: [...sandbox, ...media] });
}

/** Where a reader is, and what language the browser speaks. */
export type Reader = Pick<BrowserContextOptions, 'locale' | 'timezoneId'>;

/** Opens a browser for the pages of one origin; every request that leaves it is a problem. */
export async function openBrowser(executablePath: string, origin: string, reader: Reader = {}): Promise<BrowserPage> {
  const browser = await (running ??= launch(executablePath));
  const context = await browser.newContext({
    viewport: { width: 1400, height: 900 },
    reducedMotion: 'reduce',
    ...reader,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(MINUTE);
  const problems: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`uncaught: ${error.message}`));
  page.on('requestfailed', (request) => {
    const reason = request.failure()?.errorText ?? 'failed';
    // A page that is left gives up its own requests; a server that breaks one off is another error.
    if (reason !== 'net::ERR_ABORTED') problems.push(`${request.method()} ${request.url()}: ${reason}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400)
      problems.push(`${response.request().method()} ${response.url()}: ${response.status()}`);
  });
  page.on('request', (request) => {
    const { protocol } = new URL(request.url());
    if (protocol.startsWith('http') && !request.url().startsWith(`${origin}/`)) problems.push(`left: ${request.url()}`);
  });
  let shots = 0;
  mkdirSync(SCREENSHOTS, { recursive: true });
  return {
    page,
    problems,
    screenshot: async (name) => {
      shots += 1;
      const path = `${SCREENSHOTS}${String(shots).padStart(2, '0')}-${name}.png`;
      await page.screenshot({ path, animations: 'disabled' });
    },
    close: () => context.close(),
  };
}
