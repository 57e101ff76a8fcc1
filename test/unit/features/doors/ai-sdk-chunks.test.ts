import { describe, expect, test } from 'vitest';
import { type AiVersion, ChunkWriter } from '../../../../src/features/doors/ai-sdk/chunks.ts';
import { readWhole, type TurnStep } from '../../../../src/features/doors/turn.ts';
import type { Event } from '../../../../src/core/event.ts';

const write = (version: AiVersion, steps: Iterable<TurnStep>) => {
  const writer = new ChunkWriter(version);
  return [...steps].flatMap((step) => [...writer.take(step)]);
};
const text = (eventId: string, said: string): TurnStep => ({
  kind: 'text',
  eventId,
  author: 'agent',
  after: 1,
  number: 1,
  part: 0,
  isThought: false,
  text: said,
});
const typesOf = (version: AiVersion, steps: Iterable<TurnStep>) => write(version, steps).map(({ type }) => type);

describe('text that is taken back', () => {
  const steps: TurnStep[] = [text('a', 'First'), { kind: 'void', eventId: 'a', after: 1 }, text('b', 'Second')];

  test('is dropped by version 7, which goes on within the step', () => {
    expect(typesOf('7', steps).join(' ')).toBe('start-step text-start text-delta reset-step text-start text-delta');
  });

  test('ends the stream of a version that cannot drop it, unless nothing follows', () => {
    expect(typesOf('6', steps).slice(-2)).toEqual(['error', 'finish']);
    const end = { kind: 'end', invocation: { status: 'cancelled' } } as TurnStep;
    expect(typesOf('6', [...steps.slice(0, 2), end]).slice(-3)).toEqual(['finish-step', 'abort', 'finish']);
  });
});

test('version 5 gets a confirmation as data', () => {
  const call = { id: 'c', name: 'write', args: { a: 1 } };
  const asked = { id: 'r', name: 'adk_request_confirmation', args: { originalFunctionCall: call } };
  const events: Event[] = [
    { id: '1', author: 'a', content: { parts: [{ functionCall: call }] } },
    { id: '2', author: 'a', content: { parts: [{ functionCall: asked }] }, longRunningToolIds: ['r'] },
    // A model that calls a function of that name asks nobody.
    { id: '3', author: 'a', content: { parts: [{ functionCall: { ...asked, id: 'x' } }] } },
  ];
  const steps = events.flatMap((event, index) => [...readWhole(event, index + 1)]);
  const shown = (version: AiVersion) => write(version, steps).filter(({ type }) => !type.includes('step'));
  expect(shown('5').map(({ type }) => type)).toEqual(['tool-input-available', 'data-approval', 'tool-input-available']);
  expect(shown('6')[1]).toEqual({ type: 'tool-approval-request', approvalId: 'r', toolCallId: 'c' });
});

test('sources are those that the provider names', () => {
  const event: Event = {
    id: 'e',
    author: 'a',
    content: { parts: [{ text: 'It is.' }] },
    groundingMetadata: { groundingChunks: [{ web: { uri: 'https://a.example/', title: 'A' } }, {}] },
    citationMetadata: { citations: [{ uri: 'https://b.example/' }, { title: 'C' }] },
  };
  expect(write('7', readWhole(event, 1)).slice(4)).toEqual([
    { type: 'source-url', sourceId: 'e.0', url: 'https://a.example/', title: 'A' },
    { type: 'source-url', sourceId: 'e.2', url: 'https://b.example/' },
    { type: 'source-document', sourceId: 'e.3', mediaType: 'text/plain', title: 'C' },
  ]);
});
