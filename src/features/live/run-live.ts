import { z } from 'zod';
import { chosenIdentifierSchema, identifierSchema, sessionNotFound } from '../../core/session.ts';
import { HARNESS_APP } from '../../core/names.ts';
import { eventSchema } from '../../core/event.ts';
import type { Sockets } from '../../platform/http/operation/sockets.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { exampleAnswer } from '../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { converse } from './converse.ts';
import { LIVE_LIMITS, type LiveLimits } from './live-socket.ts';
import type { Feature } from '../../platform/feature/feature.ts';

export interface LiveContext extends InvocationContext {
  sockets: Sockets;
  /** Tests set others. */
  liveLimits?: LiveLimits;
}

const flag = (meaning: string) => z.boolean().optional().describe(`${meaning} Of no effect without a live API.`);
const DESCRIPTION = `A WebSocket: the request asks for an upgrade. The client sends JSON objects as text frames, of
which the first member of this list counts, and unknown ones are ignored:

- \`{"close": true}\` ends the session;
- \`{"activity_start": {}}\`, \`{"activity_end": {}}\`: the user begins or ends to speak;
- \`{"blob": {"mime_type": "audio/pcm", "data": "<base64>"}}\`: sound, or a picture;
- \`{"content": {"role": "user", "parts": [{"text": "…"}]}}\`: a turn in text.

The service sends an \`Event\` in each text frame: partial ones as they come, whole ones as they are stored, and at
the end of a turn one with \`turnComplete\`; or \`{"error": "…"}\`, for instance for a frame that is no JSON, after
which the session goes on. Each turn is an invocation. One in text ends in another process where its own stops or
dies: the stream of the session's events has the rest.

It closes with 1000 (ended, or nothing was said for 5 minutes), 1001 (the service stops), 1002 (there is no
such session), 1008 (no such application, a limit of live sessions, a frame of too many values or levels, a credential
that is not valid any more), 1009 (a frame is larger than 1 MiB) or 1011 (the model failed, or has no live API). The
reason is a sentence where there is something to say.`;

const liveFrameSchema = z
  .union([
    eventSchema,
    z.looseObject({ error: z.string().describe('Why a frame was not taken, or the session ends.') }),
  ])
  .describe('An event of the session, or an error.');

const NO_EFFECT = 'Taken for its clients, of no effect:';

/** OpenAPI cannot describe a live session's WebSocket frames, so the text of `description` does. */
export const runLive = operation({
  method: 'get',
  path: '/run_live',
  operationId: 'runLive',
  area: 'Agent execution',
  wire: 'ADK',
  scope: 'invoke',
  summary: 'Hold a live session',
  description: DESCRIPTION,
  isStream: true,
  owner: {
    user: ({ query }) => query.user_id,
    app: ({ query }) => query.app_name || HARNESS_APP,
    absent: ({ query }) => sessionNotFound(query.session_id),
  },
  parameters: {
    query: z.object({
      app_name: chosenIdentifierSchema.default(HARNESS_APP),
      user_id: identifierSchema,
      session_id: identifierSchema,
      modalities: z
        .array(z.enum(['TEXT', 'AUDIO', 'VIDEO']))
        .max(128)
        .optional()
        .describe('What the client wants, repeated for several. `TEXT` alone needs no live API of the model.'),
      proactive_audio: flag('The model may leave unanswered what is not meant for it.'),
      enable_affective_dialog: flag('The model answers in the tone of what it hears.'),
      save_live_blob: flag('The sound of both sides is saved, each turn as artifacts of the session.'),
      enable_session_resumption: flag(`${NO_EFFECT} a live session always continues where the last one ended.`),
      explicit_vad_signal: flag(`${NO_EFFECT} no voice activity is reported.`),
    }),
  },
  success: {
    status: 101,
    schema: liveFrameSchema,
    description: 'The connection is a WebSocket from now on. Each of its text frames is one of these.',
    example: exampleAnswer,
  },
  errors: {
    426: 'The request asks for no upgrade to `websocket`.',
    503: 'There are as many live sessions as there may be.',
  },
  handler: async (context: LiveContext, { query, principal, request, response, countAgain }) => {
    const key = { appName: query.app_name || HARNESS_APP, userId: query.user_id, sessionId: query.session_id };
    const socket = await context.sockets.accept(request, response);
    // Not awaited: the HTTP request is over, and the session runs on its own.
    void converse(context, socket, {
      key,
      modalities: query.modalities,
      limits: context.liveLimits ?? LIVE_LIMITS,
      principal,
      countTurn: countAgain,
      proactiveAudio: query.proactive_audio === true,
      affectiveDialog: query.enable_affective_dialog === true,
      savesAudio: query.save_live_blob === true,
    });
    return { kind: 'sent' };
  },
});

export const liveFeature = {
  name: 'live',
  operations: [runLive],
  sockets: [runLive.path],
} satisfies Feature<LiveContext>;
