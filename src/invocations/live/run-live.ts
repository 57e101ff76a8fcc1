import { z } from 'zod';
import { chosenIdentifierSchema, HARNESS_APP, identifierSchema, sessionNotFound } from '../../core/session.ts';
import type { Sockets } from '../../http/operation/sockets.ts';
import { operation } from '../../http/operation/operation.ts';
import type { InvocationContext } from '../context.ts';
import { converse } from './converse.ts';

/** What live sessions need of the process. */
interface LiveContext extends InvocationContext {
  sockets: Sockets;
  /** Maximum time that a live session says nothing. */
  liveIdleMs: number;
}

const absent = z.string().optional().describe('Taken, and of no effect without a live API.');

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
      proactive_audio: absent,
      enable_affective_dialog: absent,
      enable_session_resumption: absent,
      save_live_blob: absent,
      explicit_vad_signal: absent,
    }),
  },
  handler: async (context: LiveContext, { query, principal, request, response }) => {
    const key = { appName: query.app_name || HARNESS_APP, userId: query.user_id, sessionId: query.session_id };
    const socket = await context.sockets.accept(request, response);
    const sent = request.query['modalities'];
    const modalities = query.modalities === undefined ? undefined : [sent].flat().map(String);
    // Not awaited: the request is answered, what is said on the socket is its own affair.
    const { expiresAt } = principal;
    void converse(context, socket, { key, modalities, idleMs: context.liveIdleMs, expiresAt });
    return { kind: 'sent' };
  },
});
