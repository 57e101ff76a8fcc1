import type { Replay } from '../invocations/replay/replay.ts';
import { toJunitXml } from './junit.ts';
import { style, toLine, toShown } from './output.ts';

export interface Sampled {
  userId: string;
  sessionId: string;
  id: string;
  agentVersion?: string;
}

/** The outcome of a replay: its result, or the error message if the replay failed. */
export type Outcome = Sampled & { isLive: boolean; result?: Replay; failure?: string; refused?: ReplayBreak[] };

type ReplayBreak = NonNullable<Replay['breaks']>[number];

/** The breaks of the prompt cache for which a replay with `--cache` counts as different. */
export const listRefused = (
  { breaks = [] }: Replay,
  { cache, allowChanges }: { cache?: boolean; allowChanges?: boolean },
): ReplayBreak[] =>
  cache ? breaks.filter(({ kind }) => kind === 'undeclared' || (kind !== 'declared' && !allowChanges)) : [];

export const toBreakText = ({ agent, part, why, count, sequence }: ReplayBreak): string =>
  `${part} (${why}) of ${agent}, ${count} ×${sequence === undefined ? '' : `, first at event ${sequence}`}`;

/** The replays of a sample. If the command was stopped, `outcomes` lacks those of `chosen` that did not begin. */
export interface GateReport {
  app: string;
  chosen: number;
  seconds: number;
  outcomes: Outcome[];
}

/** Replays that differ from the recording at the same place, break the cache alike, or failed for the same reason. */
interface Group {
  kind: 'failure' | 'broken' | 'error' | 'unseen';
  place: string;
  outcomes: Outcome[];
}

/** Maximum number of characters that are printed of a value that differs. */
export const SHOWN = 300;
/** Maximum number of invocations that the report names for each group of equal differences. */
const NAMED = 5;

/** Exit codes of the command `replay`. `eval run` and `eval compare` use the same code for `notCompared`. */
export const EXIT = { same: 0, different: 1, failed: 2, notCompared: 3 } as const;

/** Exit code: a difference takes precedence over a failed replay, and that over one that could not be compared. */
export function toExitCode({ chosen, outcomes }: GateReport): number {
  const kinds = outcomes.map((outcome) => toGroup(outcome)?.kind);
  if (kinds.includes('failure') || kinds.includes('broken')) return EXIT.different;
  if (kinds.includes('error') || outcomes.length < chosen) return EXIT.failed;
  return kinds.includes('unseen') || outcomes.length === 0 ? EXIT.notCompared : EXIT.same;
}

/**
 * Returns the title under which the report groups a replay: the first refused break, the place of the first difference,
 * or the reason of the failure. `undefined`: no difference.
 */
function toGroup({ result, failure, refused }: Outcome): Omit<Group, 'outcomes'> | undefined {
  const [broken] = refused ?? [];
  if (broken)
    return { kind: 'broken', place: `break of the prompt cache: ${broken.part} (${broken.why}) of ${broken.agent}` };
  const { status, difference, notes = [], stopped = failure ?? '' } = result ?? {};
  if (status === 'same') return undefined;
  if (status === 'not_compared') return { kind: 'unseen', place: notes[0] ?? status };
  if (!difference) return { kind: 'error', place: stopped };
  const { path, before } = difference;
  return { kind: 'failure', place: path || (before === null ? 'an event more' : 'an event less') };
}

function toGroups(outcomes: Outcome[]): Group[] {
  const groups = new Map<string, Group>();
  for (const outcome of outcomes) {
    const group = toGroup(outcome);
    if (!group) continue;
    const name = JSON.stringify([group.kind, group.place]);
    groups.set(name, { ...group, outcomes: [...(groups.get(name)?.outcomes ?? []), outcome] });
  }
  return [...groups.values()].toSorted((one, other) => other.outcomes.length - one.outcomes.length);
}

const toName = ({ userId, sessionId, id, isLive }: Outcome) => `${userId}/${sessionId}/${id}${isLive ? ' (live)' : ''}`;
const toValue = (value: unknown) => JSON.stringify(value) ?? 'nothing';

export function toDifferenceLines({ before, after }: { before?: unknown; after?: unknown }): string[] {
  return [`  before  ${toLine(toValue(before), SHOWN)}`, `  after   ${toLine(toValue(after), SHOWN)}`];
}

function toSummary({ chosen, outcomes, seconds }: GateReport): string {
  const count = (kind?: Group['kind']) => outcomes.filter((outcome) => toGroup(outcome)?.kind === kind).length;
  const unseen = count('unseen') > 0 ? `, ${count('unseen')} not compared` : '';
  const broken = count('broken') > 0 ? `, ${count('broken')} with a refused break` : '';
  const counts = `${count()} the same, ${count('failure')} different, ${count('error')} could not${unseen}${broken}`;
  return `${outcomes.length} of ${chosen} invocations replayed in ${seconds.toFixed(1)} s: ${counts}.`;
}

/** The report as text: the groups of equal differences, the largest first, each with an example. */
export function toText(report: GateReport): string {
  const groups = toGroups(report.outcomes).flatMap(({ kind, place, outcomes }) => {
    const [first] = outcomes;
    const names = outcomes.slice(0, NAMED).map((outcome) => `  ${toShown(toName(outcome))}`);
    return [
      '',
      style('bold', `${outcomes.length} × ${toLine(place, SHOWN)}`),
      ...(kind === 'failure' ? toDifferenceLines(first?.result?.difference ?? {}) : []),
      ...names,
      ...(outcomes.length > NAMED ? [`  and ${outcomes.length - NAMED} more`] : []),
    ];
  });
  return [toSummary(report), ...groups].join('\n');
}

export const toJunit = ({ app, outcomes }: GateReport): string =>
  toJunitXml(
    `replay.${app}`,
    outcomes.map((outcome) => {
      const { kind, place = '' } = toGroup(outcome) ?? {};
      const { before, after } = outcome.result?.difference ?? {};
      const values = kind === 'failure' ? `: ${toValue(before)} became ${toValue(after)}` : '';
      const isFailure = kind === 'failure' || kind === 'broken';
      return { name: toName(outcome), kind: isFailure ? 'failure' : kind && 'error', message: `${place}${values}` };
    }),
  );
