import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { z } from 'zod';
import { listSettings } from '../src/config/config.ts';
import { features } from '../src/process/features.ts';

const INTRODUCTION = `# Configuration

Settings are environment variables, or lines of a \`.env\` file in the working directory; a variable of the environment
wins. All are optional. A wrong value ends the start with a sentence that names the variable. One that is no setting and
resembles one (\`AUDT\`), or was one, is named by a warning at the start and by \`doctor\`. \`MAX_…\` is a maximum;
\`_MS\` are milliseconds, \`_BYTES\` bytes. Brackets have the default and what is allowed; switches are
\`true\` or \`false\`. \`npm run docs:config\` makes this page.
`;

/** Sentences above the settings of a subject. */
const NOTES: Record<string, string> = {
  'Limits of one user':
    '[limits.md](limits.md#what-one-user-may-take) explains them. In mode `local` without `ALLOW_ANONYMOUS` ' +
    'there is no limit that you do not set.',
};

/** The page `docs/configuration.md`: every setting by subject, with default, allowed values and meaning. */
export const configurationPage = (): string =>
  [
    INTRODUCTION,
    ...Object.entries(listSettings(features)).map(([heading, settings]) => section(heading, settings)),
  ].join('\n');

const section = (heading: string, settings: Record<string, z.ZodType>) =>
  [
    `## ${heading}`,
    '',
    ...(NOTES[heading] ? [NOTES[heading], ''] : []),
    ...Object.entries(settings).map(([name, schema]) => entry(name, schema)),
    '',
  ].join('\n');

function entry(name: string, schema: z.ZodType): string {
  const { description = '', allowed = '', otherwise = '' } = (schema.meta() ?? {}) as Record<string, string>;
  const fallback = schema.safeParse(undefined).data as string | number | boolean | object | undefined;
  const isNone = fallback === undefined || typeof fallback === 'object';
  const values = [isNone ? otherwise : `\`${fallback}\``, allowed === '`true`, `false`' ? '' : allowed];
  const known = values.filter(Boolean).join('; ');
  return `- \`${name}\`${known && ` [${known}]`}: ${description}`;
}

if (import.meta.main) writeFileSync(fileURLToPath(new URL('configuration.md', import.meta.url)), configurationPage());
