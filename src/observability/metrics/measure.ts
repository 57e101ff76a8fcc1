import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Meter } from '@opentelemetry/api';
import type { InvocationObserver, ObservedStep } from '../../agent/loop/run.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { Metrics } from '../../platform/metrics.ts';
import type { PoolUse } from '../../platform/db/database.ts';
import { INSTRUMENTS, observeValue, toCounter, toRecorder } from './instruments.ts';

/** Values that are read when the metrics are collected. */
interface Sources {
  pools(): PoolUse[];
  activeInvocations(): number;
  openSockets(): number;
}

/** Names that may become labels: those of the agents that the operator deployed. */
export interface KnownNames {
  models: ReadonlySet<string>;
  tools: ReadonlySet<string>;
}

/** The metrics of a process. */
export interface Measures extends Metrics {
  /** Observes one invocation, its model calls and tool calls. */
  observe: () => InvocationObserver;
  /** Begins to look at what is there only when the process has started. */
  watch(sources: Sources, names: KnownNames): void;
  /** Ends what it started itself. */
  close(): void;
}

const LOOP_RESOLUTION_MS = 10;
const NANOSECONDS = 1e9;
/** The label value that replaces names chosen by a request, a model or a tool server. */
const OTHER = 'other';

/** Creates every metric on a meter. */
export function createMeasures(meter: Meter): Measures {
  const request = toRecorder(meter, INSTRUMENTS.request);
  const queue = toRecorder(meter, INSTRUMENTS.queue);
  const takeOver = toCounter(meter, INSTRUMENTS.takeOver);
  const unknownCalls = toCounter(meter, INSTRUMENTS.unknownCalls);
  const connectionWait = toRecorder(meter, INSTRUMENTS.connectionWait);
  const lateness = toRecorder(meter, INSTRUMENTS.lateness);
  const delivery = toCounter(
    meter,
    INSTRUMENTS.delivery,
    ['delivered', 'postponed', 'failed'].map((outcome) => ({ outcome })),
  );
  const streams = new Map<string, number>();
  const names: KnownNames = { models: new Set(), tools: new Set() };
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
    unknownCalls: (count) => unknownCalls({}, count),
    lent: (pool, seconds) => connectionWait(seconds, { pool }),
    // Two clocks: that of the database may have been set back.
    fired: (seconds) => lateness(Math.max(0, seconds), {}),
    delivered: (outcome) => delivery({ outcome }),
    observe: createObserver(meter, names),
    watch(sources, known) {
      Object.assign(names, known);
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

/** CPU, memory and the event loop. */
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
    // The histogram is of timers that fire every so often; how much later they fire is the delay.
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

/** Measures invocations, one observer each. */
function createObserver(meter: Meter, names: KnownNames): () => InvocationObserver {
  const invocation = toRecorder(meter, INSTRUMENTS.invocation);
  const modelCall = toRecorder(meter, INSTRUMENTS.modelCall);
  const tokens = toRecorder(meter, INSTRUMENTS.tokens);
  const toolCall = toRecorder(meter, INSTRUMENTS.toolCall);
  const known = (name: string, all: ReadonlySet<string>) => (all.has(name) ? name : OTHER);
  return () => {
    const lasted = stopwatch();
    return {
      modelCall: ({ model }, { modelName }): ObservedStep<Event> => {
        const answered = stopwatch();
        const labels = {
          'gen_ai.operation.name': 'chat',
          'gen_ai.provider.name': model.provider,
          'gen_ai.request.model': known(modelName, names.models),
        };
        return {
          end(event) {
            const error = event ? event.errorCode : 'cut_off';
            modelCall(answered(), { ...labels, ...(error ? { 'error.type': error } : {}) });
            for (const [type, count] of getTokens(event)) tokens(count, { ...labels, 'gen_ai.token.type': type });
          },
        };
      },
      toolCall: (_agent, { name }): ObservedStep<JsonObject> => {
        const answered = stopwatch();
        const tool = known(name, names.tools);
        return { end: (response) => toolCall(answered(), { tool, outcome: toOutcome(response) }) };
      },
      event: () => undefined,
      end: (ending) => {
        const outcome = ending ? (ending.error?.code ?? (ending.paused ? 'paused' : 'succeeded')) : 'lost';
        invocation(lasted(), { outcome });
      },
    };
  };
}

function getTokens(event: Event | undefined): [type: 'input' | 'output', count: number][] {
  const { promptTokenCount: input, candidatesTokenCount: output } = event?.usageMetadata ?? {};
  return [
    ...(typeof input === 'number' ? [['input', input] as ['input', number]] : []),
    ...(typeof output === 'number' ? [['output', output] as ['output', number]] : []),
  ];
}

const toOutcome = (response: JsonObject | undefined) =>
  response === undefined ? 'open' : typeof response['error'] === 'string' ? 'error' : 'ok';

/** Seconds since it was made. */
function stopwatch(): () => number {
  const startedAt = performance.now();
  return () => (performance.now() - startedAt) / 1000;
}
