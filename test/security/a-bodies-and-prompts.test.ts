import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FROZEN_MS, startWatched, type WatchedService } from '../support/watched-service.ts';

const sessions = '/apps/harness_agent/users/mallory/sessions';
const runAs = (sessionId: string, instruction: string) => ({
  prompt: 'hi',
  harness_name: 'harness_agent',
  harness: { system_prompt: instruction },
  run_agent_request: { user_id: 'mallory', session_id: sessionId },
});

describe('A: nobody stops the process', () => {
  let service: WatchedService;
  beforeAll(async () => {
    service = await startWatched();
    // The first body loads the validator.
    await service.post(sessions, { sessionId: 'warm' });
  });
  afterAll(() => service.close());

  test('600,000 keys in 7 MB are refused before anything is parsed', async () => {
    const keys = Array.from({ length: 600_000 }, (_, index) => `"k${index}":1`);
    await service.report();
    const answer = await service.send('PATCH', `${sessions}/warm`, `{"stateDelta":{${keys.join(',')}}}`);
    expect(answer.body).toEqual({ detail: 'The body has more than 100000 values.' });
    expect(answer.status).toBe(413);
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test('as many keys as are allowed freeze nothing', async () => {
    const keys = Array.from({ length: 99_990 }, (_, index) => `"k${index}":1`);
    await service.report();
    const answer = await service.send('PATCH', `${sessions}/warm`, `{"stateDelta":{${keys.join(',')}}}`);
    expect(answer.body).toEqual({ detail: 'The state would be larger than MAX_STATE_BYTES.' });
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test.each([
    ['a state of 900 KB', '{user:x}'],
    ['an artifact of 2 MB', '{artifact.a}'],
  ])('4 KB of placeholders over %s end the invocation with a sentence', async (_, placeholder) => {
    await service.post(sessions, { sessionId: 'prompt', state: { 'user:x': 'x'.repeat(900_000) } });
    await service.post(`${sessions}/prompt/artifacts`, { filename: 'a', artifact: { text: 'y'.repeat(2_000_000) } });
    const instruction = placeholder.repeat(Math.floor(4_096 / placeholder.length));
    const { status, body } = await service.post('/harness/invoke', runAs('prompt', instruction));
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        error:
          'The instruction of the agent with its placeholders filled in is larger than 262144 bytes. ' +
          'Put less into the state and the artifacts that it names.',
      },
    });
    const { body: events } = await service.get(`${sessions}/prompt/events`);
    expect((events as { errorCode?: string }[]).at(-1)?.errorCode).toBe('instruction_too_large');
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
    expect(service.process.exitCode).toBeNull();
  });
});
