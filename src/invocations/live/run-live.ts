import { z } from 'zod';
import { chosenIdentifierSchema, HARNESS_APP, identifierSchema, sessionNotFound } from '../../core/session.ts';
import type { Sockets } from '../../http/operation/sockets.ts';
import { operation } from '../../http/operation/operation.ts';
import type { InvocationContext } from '../context.ts';
import { converse } from './converse.ts';
import type { LiveLimits } from './live-socket.ts';

/** What live sessions need of the process. */
interface LiveContext extends InvocationContext {
  sockets: Sockets;
  liveLimits: LiveLimits;
}

const flag = (meaning: string) => z.boolean().optional().describe(`${meaning} Of no effect without a live API.`);
const NO_EFFECT = 'Taken for its clients, of no effect:';

/**
 * `GET /run_live`: a live session over a WebSocket. OpenAPI has no words for what is said on one, so the document
 * leaves it out.
 */
export const runLive = operation({
  method: 'get',
  path: '/run_live',
  operationId: 'runLive',
  scope: 'invoke',
  area: 'Agent execution',
  summary: 'Hold a live session',
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
      modalities: z.enum(['TEXT', 'AUDIO', 'VIDEO']).optional(),
      proactive_audio: flag('The model may leave unanswered what is not meant for it.'),
      enable_affective_dialog: flag('The model answers in the tone of what it hears.'),
      save_live_blob: flag('The sound of both sides is saved, each turn as artifacts of the session.'),
      enable_session_resumption: flag(`${NO_EFFECT} whoever opens a live session goes on where the last one ended.`),
      explicit_vad_signal: flag(`${NO_EFFECT} no voice activity is reported.`),
    }),
  },
  handler: async (context: LiveContext, { query, principal, request, response }) => {
    const key = { appName: query.app_name || HARNESS_APP, userId: query.user_id, sessionId: query.session_id };
    const socket = await context.sockets.accept(request, response);
    const sent = request.query['modalities'];
    const modalities = query.modalities === undefined ? undefined : [sent].flat().map(String);
    // Not awaited: the request is answered, what is said on the socket is its own affair.
    const { expiresAt } = principal;
    void converse(context, socket, {
      key,
      modalities,
      limits: context.liveLimits,
      expiresAt,
      proactiveAudio: query.proactive_audio === true,
      affectiveDialog: query.enable_affective_dialog === true,
      savesAudio: query.save_live_blob === true,
    });
    return { kind: 'sent' };
  },
});
