import type { Replay } from '../invocations/replay/replay.ts';
import { type GlobalOptions, sessionPath, withApi } from './api.ts';
import { EXIT, SHOWN, toDifferenceLines } from './replay-report.ts';
import { cannotRun, CommandError, style, toLine, toShown } from './output.ts';

export interface ReplayOptions extends GlobalOptions {
  model: 'stored' | 'live';
  tools: 'stored' | 'live';
  systemPrompt?: string;
}

/**
 * Replays a stored invocation and prints the first difference. Default: the session's latest invocation.
 * @returns the exit code: 0 no difference, 1 a difference, 3 the replay could not be compared
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
    console.log(options.json ? toShown(JSON.stringify(result)) : toText(id, result));
    if (result.status === 'stopped') throw new CommandError(result.stopped ?? 'It stopped.', 2);
    if (result.status === 'not_compared') return EXIT.notCompared;
    return result.status === 'same' ? EXIT.same : EXIT.different;
  }).catch(cannotRun);

function toText(id: string, { status, events, difference, output, notes, ...calls }: Replay): string {
  const what = `${events} events compared, ${calls.liveModelCalls} live model calls, ${calls.liveToolCalls} of tools`;
  const lines = [`${toShown(id)}: ${style(status === 'same' ? 'green' : 'red', status)}. ${what}.`];
  if (difference) {
    lines.push(`First difference: event ${difference.event}, ${toShown(difference.path)}`);
    lines.push(...toDifferenceLines(difference));
  }
  if (output.before !== output.after)
    lines.push(`Answer before: ${toLine(output.before, SHOWN)}`, `Answer now:    ${toLine(output.after, SHOWN)}`);
  return [...lines, ...notes.map(toShown)].join('\n');
}
