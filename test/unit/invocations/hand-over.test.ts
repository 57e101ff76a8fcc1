import { beforeEach, expect, test } from 'vitest';
import { HandedOverError } from '../../../src/core/errors.ts';
import type { NewEvent } from '../../../src/core/event.ts';
import type { InvocationContext } from '../../../src/invocations/context.ts';
import { HandOver } from '../../../src/invocations/hand-over.ts';

const lease = { key: { appName: 'a', userId: 'u', sessionId: 's' }, invocationId: 'e-1', token: 't', durationMs: 1 };
let draining: AbortController;
let stopping: AbortController;
let cancelled: AbortController;
beforeEach(() => {
  [draining, stopping, cancelled] = [new AbortController(), new AbortController(), new AbortController()];
});

function newHandOver({ attempts = 3, storedRequest = {}, inBackground = true } = {}): HandOver {
  const context = { draining: draining.signal, stopping: stopping.signal, limits: { attempts } };
  const signal = AbortSignal.any([cancelled.signal, stopping.signal]);
  return new HandOver({
    context: context as InvocationContext,
    request: { inBackground },
    lease: { ...lease, storedRequest },
    signal,
  });
}

const event = (part: object): NewEvent => ({ id: 'e', invocationId: 'e-1', author: 'a', content: { parts: [part] } });
const call = event({ functionCall: { id: 'c', name: 'charge', args: {} } });
const response = event({ functionResponse: { id: 'c', name: 'charge', response: {} } });

test('without a client a run is left between two steps, never while a call is open', () => {
  const run = newHandOver();
  run.checkStep();
  draining.abort();
  run.note(call);
  run.checkStep();
  run.note(response);
  expect(() => run.checkStep()).toThrow(HandedOverError);
});

test('a call that a person has confirmed is open from the beginning', () => {
  const run = newHandOver();
  run.begin([{ id: 'c' }]);
  draining.abort();
  run.checkStep();
  run.note(response);
  expect(() => run.checkStep()).toThrow(HandedOverError);
});

test('with a client it has the grace; then only whole responses are kept of what the loop makes', () => {
  const run = newHandOver({ inBackground: false });
  draining.abort();
  run.checkStep();
  stopping.abort(new Error('the grace is over'));
  run.checkEvent(response);
  run.checkEnd({ error: undefined });
  expect(() => run.checkStep()).toThrow(HandedOverError);
  expect(() => run.checkEvent(call)).toThrow(HandedOverError);
  expect(() => run.checkEvent({ ...response, errorCode: 'interrupted' })).toThrow(HandedOverError);
  expect(() => run.checkEnd({ error: { code: 'interrupted', message: '' } })).toThrow(HandedOverError);
});

test.each([
  ['is to end for another reason', {}, true],
  ['may begin once only', { attempts: 1 }, false],
  ['cannot go on elsewhere', { storedRequest: { endsBecause: 'it speaks' } }, false],
])('what %s ends here', (_, options, isCancelled) => {
  const run = newHandOver(options);
  draining.abort();
  if (isCancelled) cancelled.abort(new Error('cancelled'));
  stopping.abort(new Error('the grace is over'));
  expect(() => run.checkStep()).not.toThrow();
  expect(() => run.checkEvent(call)).not.toThrow();
  expect(() => run.checkEnd({ error: { code: 'interrupted', message: '' } })).not.toThrow();
});
