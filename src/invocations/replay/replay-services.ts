import type { ToolServices } from '../../agent/definition/tool.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { InvocationContext } from '../context.ts';
import { newToolServices } from '../tool-services.ts';
import type { TapeRun } from './tape-run.ts';

/** The numbers of the versions of an artifact that events saved, in order. */
const versionsIn = (events: Event[], name: string): number[] =>
  events.flatMap(({ actions }) => {
    const version = (actions?.artifactDelta as JsonObject | undefined)?.[name];
    return typeof version === 'number' ? [version] : [];
  });

/**
 * The services for tools of a replay. Tools read artifacts as they were when the run began, as far as its session says
 * which version that was; artifacts that they save exist for this replay only, under the original version number.
 */
export function replayServices(
  context: Pick<InvocationContext, 'database' | 'contentStore' | 'log'>,
  key: SessionKey,
  { history, events }: TapeRun,
): ToolServices {
  // Without a lease: its writes would be refused.
  const stored = newToolServices(context, { key, token: '' });
  const saved = new Map<string, Part[]>();
  const made = events.map(({ event }) => event);
  const versionThen = (name: string) => versionsIn(history, name).at(-1);
  const numberOf = (name: string, count: number) =>
    versionsIn(made, name)[count] ?? (versionThen(name) ?? -1) + count + 1;
  return {
    ...stored,
    async saveArtifact(name, part) {
      const parts = saved.get(name) ?? [];
      saved.set(name, [...parts, structuredClone(part)]);
      return numberOf(name, parts.length);
    },
    async loadArtifact(name, version) {
      const parts = saved.get(name) ?? [];
      const own = version === undefined ? parts.at(-1) : parts.find((_, count) => numberOf(name, count) === version);
      return own ?? stored.loadArtifact(name, version ?? versionThen(name));
    },
    listArtifacts: async () => [...new Set([...(await stored.listArtifacts()), ...saved.keys()])].toSorted(),
  };
}
