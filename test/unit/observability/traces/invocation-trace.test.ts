import type { RunInput } from '../../../../src/agent/loop/run.ts';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { expect, test } from 'vitest';
import type { PreparedAgent } from '../../../../src/agent/definition/agent.ts';
import type { Model } from '../../../../src/agent/definition/model.ts';
import type { AgentNode } from '../../../../src/agent/definition/tool.ts';
import { InvocationTrace } from '../../../../src/observability/traces/invocation-trace.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

/** Runs an agent and gives its spans as lines, indented by depth, with the error of each. */
async function outlineOf(prepared: PreparedAgent, members: Partial<RunInput> = {}): Promise<string[]> {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  const key = { appName: 'a', userId: 'u', sessionId: 's' };
  const observer = new InvocationTrace(provider.getTracer('test'), { key, invocationId: 'e' });
  const { end } = await runToEnd(runInput({ agent: prepared, observer, ...members }));
  observer.end(end);
  const spans = exporter.getFinishedSpans();
  for (const { startTime, endTime } of spans)
    expect(endTime[0] * 1e9 + endTime[1]).toBeGreaterThanOrEqual(startTime[0] * 1e9 + startTime[1]);
  const below = (parent: string | undefined, indent: string): string[] =>
    spans
      .filter((span) => span.parentSpanContext?.spanId === parent)
      .flatMap((span) => {
        const error = span.attributes['error.type'];
        const line = `${indent}${span.name}${error === undefined ? '' : ` (${String(error)})`}`;
        return [line, ...below(span.spanContext().spanId, `${indent}  `)];
      });
  return below(undefined, '');
}

const node = (name: string, more: Partial<AgentNode> = {}): AgentNode => agent({ name, ...more });

test('each agent of a tree has a span below the invocation, whoever runs it', async () => {
  const outline = await outlineOf(
    agent({
      kind: 'parallel',
      name: 'both',
      subAgents: [node('left'), node('right', { kind: 'sequential', subAgents: [node('one'), node('two')] })],
    }),
  );
  expect(outline[0]).toBe('invocation');
  expect(outline.slice(1).toSorted()).toEqual(
    ['left', 'one', 'two']
      .flatMap((name) => [`  invoke_agent ${name}`])
      .concat(Array.from({ length: 3 }, () => '    call_llm'))
      .toSorted(),
  );
});

test('several tools of one answer stand below its model call', async () => {
  const model = scriptedModel([[callPart('add', {}, 'c1'), callPart('none', {}, 'c2')], [{ text: 'done' }]]);
  expect(await outlineOf(agent({ model, tools: [tool('add', async () => 1)] }))).toEqual([
    'invocation',
    '  invoke_agent assistant',
    '    call_llm',
    '      execute_tool add',
    '      execute_tool none (tool_error)',
    '    call_llm',
  ]);
});

test('a model that fails is the error of its call and of the invocation', async () => {
  const model = scriptedModel([new AgentError('model_rejected', 'No.')]);
  expect(await outlineOf(agent({ model }))).toEqual([
    'invocation (model_rejected)',
    '  invoke_agent assistant (model_rejected)',
    '    call_llm (model_rejected)',
  ]);
});

test('a tool that a person answers later has a span without a response', async () => {
  const model = scriptedModel([[callPart('ask', {}, 'c1')]]);
  const ask = tool('ask', async () => undefined, { longRunning: true });
  expect(await outlineOf(agent({ model, tools: [ask] }))).toEqual([
    'invocation',
    '  invoke_agent assistant',
    '    call_llm',
    '      execute_tool ask',
  ]);
});

test('a call that a person confirmed runs below the agent: its model call was in another invocation', async () => {
  const confirmed = tool('pay', async () => 'paid', { needsConfirmation: true });
  const asked = {
    id: 'asked',
    author: 'assistant',
    content: { role: 'model', parts: [{ functionCall: { id: 'c1', name: 'pay', args: {} } }] },
  };
  const request = {
    id: 'request',
    invocationId: 'inv-1',
    author: 'assistant',
    content: {
      role: 'model',
      parts: [
        {
          functionCall: {
            id: 'confirm',
            name: 'adk_request_confirmation',
            args: {
              originalFunctionCall: { id: 'c1', name: 'pay', args: {} },
              toolConfirmation: { hint: '', confirmed: false },
            },
          },
        },
      ],
    },
    longRunningToolIds: ['confirm'],
  };
  const decision = userEvent('yes', {
    content: {
      role: 'user',
      parts: [{ functionResponse: { id: 'confirm', name: 'adk_request_confirmation', response: { confirmed: true } } }],
    },
  });
  const history = [userEvent('pay'), asked, request, decision];
  expect(await outlineOf(agent({ tools: [confirmed] }), { history })).toEqual([
    'invocation',
    '  invoke_agent assistant',
    '    execute_tool pay',
    '    call_llm',
  ]);
});

test('a model call that is streamed says so, though nobody reads its pieces', async () => {
  const told = async (model: Model) => {
    const exporter = new InMemorySpanExporter();
    const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const key = { appName: 'a', userId: 'u', sessionId: 's' };
    const observer = new InvocationTrace(provider.getTracer('test'), { key, invocationId: 'e' });
    await runToEnd(runInput({ agent: agent({ model }), observer }));
    const attributes = exporter.getFinishedSpans().find(({ name }) => name === 'call_llm')?.attributes;
    return [attributes?.['gen_ai.request.stream'], typeof attributes?.['gen_ai.response.time_to_first_chunk']];
  };
  const scripted = scriptedModel([[{ text: 'ok' }]]);
  const streamed: Model = {
    ...scripted,
    async *generate(request) {
      request.onAsk?.(true);
      request.onAsk?.(false);
      return yield* scripted.generate(request);
    },
  };
  expect(await told(scripted)).toEqual([false, 'undefined']);
  expect(await told(streamed)).toEqual([true, 'number']);
});
