import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { type BrowserPage, openBrowser, type Reader } from './browser.ts';
import { MINUTE } from './patience.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Narrow and wide; a page is left wide. */
const SIZES = [
  [390, 844],
  [1280, 900],
] as const;

/** The console in a browser. */
export interface ConsolePage extends BrowserPage {
  /** Takes screenshots, wide and narrow, in light and dark colours. @returns all that is wrong with the page so far */
  look(name: string): Promise<string[]>;
  /** Presses a button of the open question. */
  confirm(name: string): Promise<void>;
}

/** Opens a browser for the console of a service. */
export async function openConsole(executablePath: string, origin: string, reader?: Reader): Promise<ConsolePage> {
  const browser = await openBrowser(executablePath, origin, reader);
  const { page } = browser;
  page.setDefaultTimeout(MINUTE);
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: 'light' });
  return {
    ...browser,
    look: async (name) => {
      const faults: string[] = [];
      for (const [width, height] of SIZES) {
        await page.setViewportSize({ width, height });
        for (const colorScheme of ['dark', 'light'] as const) {
          await page.emulateMedia({ colorScheme });
          const shown = `${name}-${width}-${colorScheme}`;
          await browser.screenshot(`console-${shown}`);
          faults.push(...(await faultsOf(page)).map((fault) => `${shown}: ${fault}`));
        }
        const isWider = await page.evaluate('document.documentElement.scrollWidth > innerWidth');
        if (isWider === true) faults.push(`${name} is wider than ${width} pixels`);
      }
      return [...browser.problems, ...faults];
    },
    confirm: (name) => page.getByRole('alertdialog').getByRole('button', { name, exact: true }).click(),
  };
}

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string }[];
}

/** Lists what axe calls serious or worse. */
async function faultsOf(page: Page): Promise<string[]> {
  // By the debugger: the policy of the page lets no script in.
  const violations = await page.evaluate(
    `${AXE}; axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)`,
  );
  return (violations as Violation[])
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' ')}`);
}
