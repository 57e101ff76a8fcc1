import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Attributes, Meter } from '@opentelemetry/api';
import type { InvocationObserver, ObservedStep } from '../../agent/loop/run.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { type Metrics, TURN_REFUSALS } from '../../platform/metrics.ts';
import type { PoolUse } from '../../platform/db/database.ts';
import { toProviderName, toTokens } from '../tokens.ts';
import { INSTRUMENTS, observeValue, TOKEN_COUNTERS, toCounter, toRecorder } from './instruments.ts';

interface Sources {
  pools(): PoolUse[];
  activeInvocations(): number;
  openSockets(): number;
}

/** Names of the deployed agents, models and tools; other names never become label values. */
export interface KnownNames {
  agents: ReadonlySet<string>;
  models: ReadonlySet<string>;
  tools: ReadonlySet<string>;
}

export interface Measures extends Metrics {
  observe: () => InvocationObserver;
  /** Adds metrics of components that exist only after start-up, such as connection pools. */
  watch(sources: Sources, names: KnownNames): void;
  close(): void;
}

const LOOP_RESOLUTION_MS = 10;
const NANOSECONDS = 1e9;
/** Label value for names that are not deployed, because a request, a model or a tool server chose them. */
const OTHER = 'other';

export function createMeasures(meter: Meter): Measures {
  const request = toRecorder(meter, INSTRUMENTS.request);
  const queue = toRecorder(meter, INSTRUMENTS.queue);
  const takeOver = toCounter(meter, INSTRUMENTS.takeOver);
  const turnRefused = toCounter(
    meter,
    INSTRUMENTS.turnRefused,
    TURN_REFUSALS.map((reason) => ({ reason })),
  );
  const forgotten = toCounter(meter, INSTRUMENTS.forgotten);
  const unknownCalls = toCounter(meter, INSTRUMENTS.unknownCalls);
  const connectionWait = toRecorder(meter, INSTRUMENTS.connectionWait);
  const lateness = toRecorder(meter, INSTRUMENTS.lateness);
  const delivery = toCounter(
    meter,
    INSTRUMENTS.delivery,
    ['delivered', 'postponed', 'failed'].map((outcome) => ({ outcome })),
  );
  const score = toCounter(
    meter,
    INSTRUMENTS.score,
    ['passed', 'failed', 'not_evaluated', 'skipped'].map((outcome) => ({ outcome })),
  );
  const streams = new Map<string, number>();
  const names: KnownNames = { agents: new Set(), models: new Set(), tools: new Set() };
  const loop = watchProcess(meter);
  return {
    request: (operation, status, seconds) => request(seconds, { operation, status: String(status) }),
    stream: (operation) => {
      const add = (change: number) => streams.set(operation, (streams.get(operation) ?? 0) + change);
      add(1);
      return () => add(-1);
    },
    queued: (outcome, seconds) => queue(seconds, { outcome }),
    takenOver: () => takeOver(),
    turnRefused: (reason) => turnRefused({ reason }),
    foundForgotten: (answers) => forgotten({}, answers),
    unknownCalls: (count) => unknownCalls({}, count),
    lent: (pool, seconds) => connectionWait(seconds, { pool }),
    // `seconds` may be negative, because the clocks of process and database differ.
    fired: (seconds) => lateness(Math.max(0, seconds), {}),
    delivered: (outcome) => delivery({ outcome }),
    scored: (outcome, count) => score({ outcome }, count),
    observe: createObserver(meter, names, createCallMeasure(meter)),
    watch(sources, deployed) {
      Object.assign(names, deployed);
      observeValue(meter, INSTRUMENTS.active, () => [[sources.activeInvocations()]]);
      observeValue(meter, INSTRUMENTS.streams, () => [
        ...[...streams].map(([operation, count]): [number, { operation: string }] => [count, { operation }]),
        [sources.openSockets(), { operation: 'runLive' }],
      ]);
      observeValue(meter, INSTRUMENTS.connections, () =>
        sources.pools().flatMap(({ pool, open, idle }) => [
          [open - idle, { pool, state: 'used' }],
          [idle, { pool, state: 'idle' }],
        ]),
      );
      observeValue(meter, INSTRUMENTS.connectionWaiters, () =>
        sources.pools().map(({ pool, waiting }) => [waiting, { pool }]),
      );
    },
    close: () => loop.disable(),
  };
}

function watchProcess(meter: Meter): { disable(): void } {
  const delay = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  delay.enable();
  observeValue(meter, INSTRUMENTS.loopDelay, () => {
    const percentiles = [
      ['50', delay.percentile(50)],
      ['99', delay.percentile(99)],
      ['100', delay.max],
    ] as const;
    delay.reset();
    // The histogram measures timer intervals; the part beyond the resolution is the event loop's delay.
    const toSeconds = (ns: number) => Math.max(0, ns / NANOSECONDS - LOOP_RESOLUTION_MS / 1000);
    return percentiles.map(([percentile, ns]) => [toSeconds(ns), { percentile }]);
  });
  observeValue(meter, INSTRUMENTS.cpu, () => {
    const { user, system } = process.cpuUsage();
    return [[(user + system) / 1e6]];
  });
  observeValue(meter, INSTRUMENTS.memory, () => [[process.memoryUsage.rss()]]);
  const startedAt = Math.round(Date.now() / 1000 - process.uptime());
  observeValue(meter, INSTRUMENTS.startTime, () => [[startedAt]]);
  return delay;
}

function createObserver(meter: Meter, names: KnownNames, measureCall: MeasureCall): () => InvocationObserver {
  const invocation = toRecorder(meter, INSTRUMENTS.invocation);
  const agent = toRecorder(meter, INSTRUMENTS.agent);
  const firstChunk = toRecorder(meter, INSTRUMENTS.firstChunk);
  const toolCall = toRecorder(meter, INSTRUMENTS.toolCall);
  const passedOver = toCounter(meter, INSTRUMENTS.passedOver);
  const toLabel = (name: string, all: ReadonlySet<string>) => (all.has(name) ? name : OTHER);
  return () => {
    const elapsed = stopwatch();
    const agents = new Map<string, { elapsed: () => number; seconds: number }>();
    let latest: string | undefined;
    const note = (name: string) => {
      const timing = agents.get(name) ?? { elapsed: stopwatch(), seconds: 0 };
      agents.set((latest = name), { ...timing, seconds: timing.elapsed() });
    };
    return {
      modelCall: ({ name, model }, { modelName }): ObservedStep<Event> => {
        note(name);
        const callElapsed = stopwatch();
        const labels = {
          'gen_ai.operation.name': 'chat',
          'gen_ai.provider.name': toProviderName(model.provider),
          'gen_ai.request.model': toLabel(modelName, names.models),
        };
        return {
          begin: () => firstChunk(callElapsed(), labels),
          passOver: () => passedOver({ provider: model.provider }),
          end(event) {
            measureCall(callElapsed(), labels, event);
            note(name);
          },
        };
      },
      toolCall: (name, call): ObservedStep<JsonObject> => {
        note(name);
        const callElapsed = stopwatch();
        const labels = {
          'gen_ai.agent.name': toLabel(name, names.agents),
          'gen_ai.tool.name': toLabel(call.name, names.tools),
          'gen_ai.tool.type': 'function',
        };
        return {
          end(response) {
            const error = typeof response?.['error'] === 'string' ? { 'error.type': 'tool_error' } : {};
            if (response) toolCall(callElapsed(), { ...labels, ...error });
            note(name);
          },
        };
      },
      end: (ending) => {
        const error = ending ? ending.error?.code : 'lost';
        invocation(elapsed(), { outcome: error ?? (ending?.paused ? 'paused' : 'succeeded') });
        for (const [name, { seconds }] of agents) {
          const labels = { 'gen_ai.agent.name': toLabel(name, names.agents) };
          agent(seconds, { ...labels, ...(error && name === latest ? { 'error.type': error } : {}) });
        }
      },
    };
  };
}

type MeasureCall = (seconds: number, labels: Attributes, event: Event | undefined) => void;

/** Records the duration and tokens of model calls; a failed call counts 0 tokens. */
function createCallMeasure(meter: Meter): MeasureCall {
  const duration = toRecorder(meter, INSTRUMENTS.modelCall);
  const input = toRecorder(meter, INSTRUMENTS.callInput);
  const output = toRecorder(meter, INSTRUMENTS.callOutput);
  const counters = Object.entries(TOKEN_COUNTERS).map(
    ([name, instrument]) => [name as keyof typeof TOKEN_COUNTERS, toCounter(meter, instrument, [])] as const,
  );
  return (seconds, labels, event) => {
    const code = event ? event.errorCode : 'cut_off';
    const withError = { ...labels, ...(code ? { 'error.type': code } : {}) };
    const tokens = toTokens(event ?? {});
    duration(seconds, withError);
    input(tokens.input_tokens, withError);
    output(tokens.output_tokens, withError);
    for (const [name, count] of counters) count({ ...labels, 'gen_ai.token.modality': 'unknown' }, tokens[name]);
  };
}

function stopwatch(): () => number {
  const startedAt = performance.now();
  return () => (performance.now() - startedAt) / 1000;
}
