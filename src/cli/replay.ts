import type { Replay } from '../invocations/replay/replay.ts';
import { type GlobalOptions, sessionPath, withApi } from './api.ts';
import { EXIT, listRefused, SHOWN, toBreakText, toDifferenceLines } from './replay-report.ts';
import { cannotRun, CommandError, style, toLine, toShown } from './output.ts';

export interface ReplayOptions extends GlobalOptions {
  model: 'stored' | 'live';
  tools: 'stored' | 'live';
  systemPrompt?: string;
  cache?: boolean;
  allowChanges?: boolean;
}

/**
 * Replays a stored invocation and prints the first difference. Default: the session's latest invocation.
 * @returns the exit code: 0 no difference, 1 a difference or a break that `--cache` refuses, 3 the replay could not be compared
 * @throws {CommandError} with exit code 2 if the replay stops before its end
 */
export const replay = (session: string, invocation: string | undefined, options: ReplayOptions): Promise<number> =>
  withApi(options, async (api) => {
    const path = `${sessionPath(options, session)}/invocations`;
    const id = invocation ?? (await api.send<{ id: string }[]>('GET', `${path}?limit=1`))[0]?.id;
    if (id === undefined) throw new CommandError(`Session ${session} has no invocation.`, 2);
    const { model, tools, systemPrompt } = options;
    const harness = systemPrompt === undefined ? {} : { harness: { system_prompt: systemPrompt } };
    const body = { modelExecutionMode: model, toolExecutionMode: tools, ...harness };
    const result = await api.send<Replay>('POST', `${path}/${encodeURIComponent(id)}/replay`, body);
    const refused = listRefused(result, options);
    console.log(options.json ? toShown(JSON.stringify(result)) : toText(id, result, options));
    if (refused.length > 0) return EXIT.different;
    if (result.status === 'stopped') throw new CommandError(result.stopped ?? 'It stopped.', 2);
    if (result.status === 'not_compared') return EXIT.notCompared;
    return result.status === 'same' ? EXIT.same : EXIT.different;
  }).catch(cannotRun);

function toText(id: string, replayed: Replay, options: ReplayOptions): string {
  const { status, events, difference, output, notes, breaks = [], ...calls } = replayed;
  const what = `${events} events compared, ${calls.liveModelCalls} live model calls, ${calls.liveToolCalls} of tools`;
  const lines = [`${toShown(id)}: ${style(status === 'same' ? 'green' : 'red', status)}. ${what}.`];
  if (difference) {
    lines.push(`First difference: event ${difference.event}, ${toShown(difference.path)}`);
    lines.push(...toDifferenceLines(difference));
  }
  if (output.before !== output.after)
    lines.push(`Answer before: ${toLine(output.before, SHOWN)}`, `Answer now:    ${toLine(output.after, SHOWN)}`);
  const refused = listRefused(replayed, options);
  for (const one of options.cache ? breaks : [])
    lines.push(`${refused.includes(one) ? 'Break' : 'Break, allowed'}: ${toLine(toBreakText(one), SHOWN)}`);
  return [...lines, ...notes.map(toShown)].join('\n');
}
