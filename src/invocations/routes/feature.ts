import { IDEMPOTENCY_HOURS } from '../../conversation/idempotency/idempotency.ts';
import { identifierSchema } from '../../core/session.ts';
import { invocations, toolCalls } from '../../platform/db/schema/schema.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { invocationPath } from '../../platform/http/operation/parameters.ts';
import { endUnserved, runBackgroundQueue } from '../background.ts';
import { endDeadWaiters, endLostInvocations, takeOverAll } from '../take-over.ts';
import { invocationSchema } from '../invocation.ts';
import { forgetInvocationKeys } from '../invocation-store.ts';
import { deleteOldPrompts } from '../tape.ts';
import { toolCallSchema, toolCallOperations } from './tool-calls.ts';
import { INVOCATION_SETTINGS } from '../settings.ts';
import { invocationHeaders } from '../wire-request.ts';
import { harnessInvoke } from './harness-invoke.ts';
import { listAppInvocations, listAllInvocations, listedInvocationSchema } from './app-invocations.ts';
import { type BackgroundContext, invocationOperations } from './invocations.ts';
import { sessionEventOperations } from './session-events.ts';
import { usageOperations } from './usage.ts';

/** Days for which an agent's unused instruction and tools are stored; later replays cannot tell if they changed. */
const PROMPT_DAYS = 90;

const end = (column: string, value: string) =>
  `case when r.status in ('queued', 'running') then ${value} else r.${column} end`;

/** JSON path of values that are no pair of whole numbers (`invocations.model_tokens`). */
const NO_TOKENS =
  'strict $.* ? (@.type() != "array" || @.size() != 2 || exists(@[*] ? ' +
  '(@.type() != "number" || @ < 0 || @ > 9007199254740991 || @.floor() != @)))';

export const invocationFeature = {
  name: 'invocations',
  settings: { 'Invocations and limits': INVOCATION_SETTINGS },
  operations: [
    ...usageOperations,
    listAppInvocations,
    listAllInvocations,
    ...invocationOperations,
    ...toolCallOperations,
    ...sessionEventOperations,
    harnessInvoke,
  ],
  schemas: { Invocation: invocationSchema, ListedInvocation: listedInvocationSchema, ToolCall: toolCallSchema },
  parameters: {
    InvocationId: invocationPath.shape.invocationId,
    XDoubleTexting: invocationHeaders.shape['x-double-texting'],
  },
  workers: [runBackgroundQueue],
  sweeps: [
    {
      group: 'takeOver',
      name: 'ending the waiters of dead processes',
      run: ({ database }) => endDeadWaiters(database.db),
    },
    {
      group: 'takeOver',
      name: 'ending invocations that lost their session',
      run: ({ database }) => endLostInvocations(database.db),
    },
    { group: 'takeOver', name: 'taking over the invocations of dead processes', run: takeOverAll },
    { group: 'minutely', name: 'ending what no process serves', run: endUnserved },
    {
      group: 'minutely',
      name: 'forgetting the idempotency keys of invocations',
      run: ({ database, signal }) => forgetInvocationKeys(database.db, IDEMPOTENCY_HOURS, signal),
    },
    {
      group: 'minutely',
      name: 'deleting old prompts',
      run: ({ database, signal }) => deleteOldPrompts(database.db, PROMPT_DAYS, signal),
    },
  ],
  userTables: [
    {
      table: invocations,
      cascades: true,
      imported: { id: identifierSchema },
      setByRuntime: {
        status: end('status', `'interrupted'`),
        lease_token: 'gen_random_uuid()',
        lease_expire_time: 'clock_timestamp()',
        request: 'null',
        job: 'null',
        agent: 'left(r.agent, 256)',
        first_text: 'left(r.first_text, 200)',
        attempt: '1',
        stop_requested_as: 'null',
        stop_request_time: 'null',
        // A later run adds its tape to an array only.
        tapes: `case when jsonb_typeof(r.tapes) = 'array' then r.tapes end`,
        // A message that was taken without being counted stays so.
        count_time:
          'case when r.steered_invocation_id is null then coalesce(r.count_time, clock_timestamp()) else r.count_time end',
        not_before: 'null',
        waits_for_tasks: 'null',
        // Lines of earlier versions lack these two.
        failed_calls: 'coalesce(r.failed_calls, 0)',
        work_ms: 'coalesce(r.work_ms, 0)',
        // What has another shape would break the list of invocations.
        model_tokens: `case when jsonb_typeof(r.model_tokens) = 'object' and not r.model_tokens @? '${NO_TOKENS}'
                         then r.model_tokens end`,
        steered_invocation_id: 'left(r.steered_invocation_id, 256)',
        // Its end looks for its children.
        children: 'least(100, greatest(0, coalesce(r.children, 0)))',
        is_retried: 'coalesce(r.is_retried, false)',
        first_end_time: 'case when r.cronjob_id is not null then coalesce(r.end_time, clock_timestamp()) end',
        end_time: end('end_time', 'clock_timestamp()'),
        error_code: end('error_code', `'interrupted'`),
        error_message: end('error_message', `'It was exported while it ran.'`),
      },
    },
    {
      table: toolCalls,
      // Responses of tool calls are not imported, because a forged one would be taken for the tool's.
      setByRuntime: { state: `case when r.state = 'started' then 'unknown' else r.state end`, response: 'null' },
    },
  ],
} satisfies Feature<BackgroundContext>;
