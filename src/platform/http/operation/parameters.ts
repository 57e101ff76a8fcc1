import { z } from 'zod';
import { keyError, MAX_IDENTIFIER_LENGTH } from '../../../core/session.ts';
import { textFormat } from '../../../core/text-format.ts';

/** Largest value of PostgreSQL's `integer`, which sequences and version numbers are. */
export const INT32_MAX = 2 ** 31 - 1;
/** Maximum number of elements that a client may ask for in one page. */
const MAX_PAGE_SIZE = 1_000;

/** An identifier in plain ASCII, as most are, which no rule refuses. */
const PLAIN = new RegExp(`^[\\x20-\\x7e]{0,${MAX_IDENTIFIER_LENGTH}}$`);
/** pydantic and JSON Schema count code points, JavaScript UTF-16 units. */
const codePoints = (text: string) => Array.from(text).length;

/**
 * Identifiers become keys of tables: PostgreSQL cannot store NUL, and an index row has a size limit (see
 * `session.ts`). `pattern` is published, not checked: what breaks a narrower one names nothing. Paths of changes must
 * also be names that something new may have (`validation/validate.ts`).
 */
const identifier = (description: string, pattern = '^[^\\x00-\\x1f]+$') =>
  z
    .string()
    .check(({ value, issues }) => {
      if (PLAIN.test(value)) return;
      const refuse = (message: string) => issues.push({ code: 'custom', message, input: value });
      // oxlint-disable-next-line no-control-regex
      if (/[\u0000-\u001f]/.test(value)) refuse('control characters are not allowed');
      else if (value.length > MAX_IDENTIFIER_LENGTH && codePoints(value) > MAX_IDENTIFIER_LENGTH) {
        issues.push({
          code: 'too_big',
          origin: 'string',
          maximum: MAX_IDENTIFIER_LENGTH,
          inclusive: true,
          input: value,
        });
      } else {
        const reason = keyError(value);
        if (reason !== undefined) refuse(reason);
      }
    })
    .meta({ description, minLength: 1, maxLength: MAX_IDENTIFIER_LENGTH, pattern });

/** An integer in a path; `undefined` for one beyond PostgreSQL's `integer`, which is well formed and names nothing. */
const integer = (description: string) =>
  z
    .int()
    .meta({ description })
    .transform((value) => (Math.abs(value) <= INT32_MAX ? value : undefined));

/** Declares an id in a path that holds identifiers, so it may be longer than one. */
export const idInPath = (description: string) =>
  z.string().max(4_096).regex(new RegExp('^[^\\x00-\\x1f]+$')).describe(description);

/** The parameters of a path, by the name that they have in camelCase: `{app_name}` is `appName`. */
export const appPath = z.object({ appName: identifier('Application name.') });
export const versionPath = appPath.extend({ version: identifier('Digest of a version of the application.') });
export const userPath = appPath.extend({ userId: identifier('User identifier.') });
export const sessionPath = userPath.extend({ sessionId: identifier('Session identifier.') });
export const eventPath = sessionPath.extend({ eventId: identifier('Event identifier.') });
export const invocationPath = sessionPath.extend({ invocationId: identifier('Invocation identifier.') });
export const toolCallPath = sessionPath.extend({
  callId: identifier('Id of the function call in its event, or of its operation.'),
});
export const artifactPath = sessionPath.extend({
  artifactName: identifier('Name of the artifact; `user:` in front means one of the user. May hold `/`.'),
});
export const artifactVersionPath = artifactPath.extend({ versionId: integer('Version number.') });
export const evalSetPath = appPath.extend({
  evalSetId: identifier('Identifier of the evaluation set.'),
});
export const evalCasePath = evalSetPath.extend({ evalId: identifier('Identifier of the case.') });
export const evalResultPath = appPath.extend({ evalResultId: identifier('Identifier of the result.') });
export const evalRunPath = appPath.extend({ runId: identifier('Identifier of the evaluation run.') });
export const scoreRulePath = appPath.extend({ ruleId: identifier('Identifier of the rule.') });
/** A cronjob, whose owner the path does not name. */
export const cronjobPath = z.object({ jobId: identifier('Cronjob identifier.') });
/** A run of a cronjob. */
export const cronjobRunPath = cronjobPath.extend({ runId: identifier('Run identifier.') });
/** A task, whose session the path does not name. */
export const taskPath = z.object({ taskId: identifier('Task identifier.') });
export const signalPath = sessionPath.extend({
  signalName: identifier('Name of the signal.', '^[A-Za-z0-9_.-]{1,64}$'),
});
/** A public address, which names nothing but itself. */
export const tokenPath = z.object({ token: identifier('The token of the address.') });
/** A webhook, whose owner the path does not name. */
export const webhookPath = z.object({ webhookId: identifier('Webhook identifier.') });
/** A delivery to a webhook. */
export const deliveryPath = webhookPath.extend({ deliveryId: identifier('Delivery identifier.') });
/** Paths of the operations on all applications. */
export const bareSessionPath = sessionPath.pick({ sessionId: true });
export const bareEventPath = eventPath.pick({ eventId: true });
export const appSessionPath = sessionPath.omit({ userId: true });
export const appEventPath = eventPath.omit({ userId: true, sessionId: true });

/** The query of a list of what one user has, if no path names the user. */
export const ownerQuery = z.object({
  ownerId: z.string().max(256).optional().describe('Whose they are. Needed where no user is logged in.'),
});

/** How many elements a page has at most. */
export const pageSize = (description: string) => z.int().min(1).max(MAX_PAGE_SIZE).describe(description);
/** A place in the stream of a session, as its frames name it. Numbers of deltas are microseconds since 1970. */
export const streamPosition = textFormat(
  'stream-position',
  (text) => (Number(text.split('.')[0]) <= INT32_MAX ? undefined : 'no place in a session'),
  z.string().regex(/^\d{1,10}(\.\d{16})?$/, { abort: true }),
);
/** A place in a session's events: only those after it. The first event has place 1. */
export const afterSequence = z.int().min(0).max(INT32_MAX).describe('Only events after this place; the first has 1.');
