import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Request, Response } from 'express';
import { expect, test } from 'vitest';
import { toUserLimits } from '../../../../../src/config/limits.ts';
import { createRequestLimits } from '../../../../../src/platform/http/limits/caller-limits.ts';
import { sampleOperations } from '../../../../support/edge-operations.ts';

const limits = createRequestLimits(
  { query: () => Promise.reject(new Error('no rate is counted')) },
  toUserLimits({}, false),
  1_048_576,
);
const admit = (method: string) => {
  const operation = sampleOperations.find((each) => each.method === method) as (typeof sampleOperations)[0];
  return limits(operation).admit('busy', ...abandoned());
};

/** A request whose client has gone before it was let in. */
function abandoned() {
  const request = new IncomingMessage(new Socket());
  const response = new ServerResponse(request);
  request.socket.destroy();
  return [request as Request, response as Response] as const;
}

test('nothing is read for a client that has gone: it would count for nobody', async () => {
  await expect(admit('get')).rejects.toThrow('The client has gone.');
});

test('a change of a client that has gone is made', async () => {
  expect(await admit('post')).toBeUndefined();
});
