import { type InvocationObserver, observeAll } from './agent/loop/run.ts';
import { listAgents } from './apps/agent-description.ts';
import type { HostedAgent } from './apps/hosted-agent.ts';
import type { Config } from './core/config.ts';
import type { InvocationContext } from './invocations/context.ts';
import type { KnownNames } from './metrics/measure.ts';
import type { OpenMetrics } from './metrics/open-metrics.ts';
import { VERSION } from './version.ts';

/** The metrics of this process; `undefined`, at no cost, where nobody can read them. */
export async function openMetricsIfWanted(config: Config): Promise<OpenMetrics | undefined> {
  if (config.METRICS_PORT === undefined) return undefined;
  // OpenTelemetry's packages take 15 MB and a quarter of a second.
  const { openMetrics } = await import('./metrics/open-metrics.ts');
  return openMetrics(config, VERSION);
}

type Observe = NonNullable<InvocationContext['observe']>;

/** Observes an invocation in several ways at once; `undefined` where there is none. Its first end counts. */
export function observeInvocations(ways: (Observe | undefined)[]): Observe | undefined {
  const present = ways.filter((way) => way !== undefined);
  if (present.length === 0) return undefined;
  return (invocation) => {
    const observers = present.map((way) => way(invocation));
    let hasEnded = false;
    const end: InvocationObserver['end'] = (ending) => {
      if (!hasEnded) for (const observer of observers) observer.end(ending);
      hasEnded = true;
    };
    return { ...observeAll(observers), end };
  };
}

/** Names of models and tools that the deployed agents have. */
export function namesOf(agents: ReadonlyMap<string, Pick<HostedAgent, 'describe'>>): KnownNames {
  const described = [...agents.values()].flatMap((agent) => listAgents(agent.describe()));
  return {
    models: new Set(described.map(({ model }) => model)),
    tools: new Set(described.flatMap(({ tools }) => tools.map(({ name }) => name))),
  };
}
