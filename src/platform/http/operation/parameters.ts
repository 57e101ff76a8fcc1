import { z } from 'zod';
import { keyError, MAX_IDENTIFIER_LENGTH } from '../../../core/session.ts';
import { countCharacters, textFormat } from '../../../core/text-format.ts';

/** Maximum of PostgreSQL's `integer`, the type of sequences and version numbers. */
export const INT32_MAX = 2 ** 31 - 1;
/** Maximum number of elements that a client may request per page. */
const MAX_PAGE_SIZE = 1_000;

/**
 * Printable ASCII of valid length satisfies all rules for identifiers. Tested first, because most identifiers match.
 */
const PLAIN = new RegExp(`^[\\x20-\\x7e]{0,${MAX_IDENTIFIER_LENGTH}}$`);

/**
 * An identifier, which becomes a key of a table: PostgreSQL cannot store NUL, and an index row has a size limit
 * (`session.ts`). `pattern` is published but not checked, because an identifier that violates it does not exist. Paths
 * of changes must also satisfy the rules for new names (`validation/validate.ts`).
 */
const identifier = (description: string, pattern = '^[^\\x00-\\x1f]+$') =>
  z
    .string()
    .check(({ value, issues }) => {
      if (PLAIN.test(value)) return;
      const refuse = (message: string) => issues.push({ code: 'custom', message, input: value });
      // oxlint-disable-next-line no-control-regex
      if (/[\u0000-\u001f]/.test(value)) refuse('control characters are not allowed');
      else if (value.length > MAX_IDENTIFIER_LENGTH && countCharacters(value) > MAX_IDENTIFIER_LENGTH) {
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

/** An integer in a path; `undefined` beyond PostgreSQL's `integer`: the number is valid, but no object can have it. */
const integer = (description: string) =>
  z
    .int()
    .meta({ description })
    .transform((value) => (Math.abs(value) <= INT32_MAX ? value : undefined));

/** Declares an id that is composed of several identifiers, so that it may be longer than an identifier. */
export const idInPath = (description: string) =>
  z.string().max(4_096).regex(new RegExp('^[^\\x00-\\x1f]+$')).describe(description);

/** Path parameters of an application. Keys are camelCase names: `{app_name}` is `appName`. */
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
/** Path parameter of a cronjob, without its owner. */
export const cronjobPath = z.object({ jobId: identifier('Cronjob identifier.') });
export const cronjobRunPath = cronjobPath.extend({ runId: identifier('Run identifier.') });
/** Path parameter of a task, without its session. */
export const taskPath = z.object({ taskId: identifier('Task identifier.') });
export const signalPath = sessionPath.extend({
  signalName: identifier('Name of the signal.', '^[A-Za-z0-9_.-]{1,64}$'),
});
/** Path parameter of a public URL: a token, which alone identifies the resource. */
export const tokenPath = z.object({ token: identifier('The token of the address.') });
/** Path parameter of a webhook, without its owner. */
export const webhookPath = z.object({ webhookId: identifier('Webhook identifier.') });
export const deliveryPath = webhookPath.extend({ deliveryId: identifier('Delivery identifier.') });
/** Path parameters of the session operations that span all applications. */
export const bareSessionPath = sessionPath.pick({ sessionId: true });
export const bareEventPath = eventPath.pick({ eventId: true });
export const appSessionPath = sessionPath.omit({ userId: true });
export const appEventPath = eventPath.omit({ userId: true, sessionId: true });

/** Query parameters of a list of a user's objects, if the path names no user. */
export const ownerQuery = z.object({
  ownerId: z.string().max(256).optional().describe('Whose they are. Needed where no user is logged in.'),
});

/** A filter of a list: a text that rows have. */
export const filterText = (meaning: string) => z.string().min(1).max(256).optional().describe(meaning);

export const pageSize = (description: string) => z.int().min(1).max(MAX_PAGE_SIZE).describe(description);
/** A frame's id in an event stream: a sequence; for a delta also a dot and its time in microseconds since 1970. */
export const streamPosition = textFormat(
  'stream-position',
  (text) => (Number(text.split('.')[0]) <= INT32_MAX ? undefined : 'no place in a session'),
  z.string().regex(/^\d{1,10}(\.\d{16})?$/, { abort: true }),
);
/** The query parameter that lists only events after a sequence; the first event has sequence 1. */
export const afterSequence = z.int().min(0).max(INT32_MAX).describe('Only events after this place; the first has 1.');
