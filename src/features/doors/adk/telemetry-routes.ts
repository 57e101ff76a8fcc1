import { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { looseObject } from '../../../core/members.ts';
import { area } from '../../../platform/http/operation/area.ts';

const room = area<unknown>('Service and applications', {
  read: 'read',
  write: 'admin',
  owner: 'service',
  wire: 'ADK',
});

const telemetrySchema = looseObject('A choice about telemetry.', {
  telemetry: z.boolean().nullable().describe('Whether usage may be reported.'),
});

/** Declines telemetry, or the ADK Web UI asks for consent on every load. Nothing is ever reported to ADK. */
const NO_TELEMETRY = { telemetry: false };
const telemetry = {
  path: '/config/telemetry',
  success: { schema: telemetrySchema, description: 'Never: `false`.', example: NO_TELEMETRY },
} as const;

const getTelemetry = room.operation({
  method: 'get',
  ...telemetry,
  operationId: 'getTelemetry',
  summary: 'Is usage reported',
  handler: async () => ({ kind: 'value', value: NO_TELEMETRY }),
});

const setTelemetry = room.operation({
  method: 'post',
  ...telemetry,
  operationId: 'setTelemetry',
  summary: 'Choose whether usage is reported',
  description: 'Nothing is ever reported, so nothing is kept.',
  parameters: {
    headers: z.object({
      'x-adk-telemetry-request': z
        .string()
        .optional()
        .meta({ description: 'Must be `true`: no web page can send it unasked.', enum: ['true'] }),
    }),
  },
  body: { schema: telemetrySchema, required: true, example: NO_TELEMETRY },
  errors: { 400: 'The header is missing.' },
  handler: async (_context, { headers }) => {
    if (headers['x-adk-telemetry-request'] === 'true') return { kind: 'value', value: NO_TELEMETRY };
    throw new InvalidError('Forbidden: missing required security header');
  },
});

export const telemetryOperations = [getTelemetry, setTelemetry];
