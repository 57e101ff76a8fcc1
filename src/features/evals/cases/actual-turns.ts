import type { AgentDescription } from '../../../conversation/apps/agent-description.ts';
import { listAgents } from '../../../conversation/apps/agent-description.ts';
import { getFunctionResponses } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { saysSomething, toTurnParts, type TurnParts } from './eval-case.ts';
import type { Turn } from '../metrics/turn.ts';

/**
 * The turns that happened in a session, with what metrics read beside the words: tokens and model of each answer,
 * durations, and what each agent that spoke was given. A case leaves that out (see `toEvalInvocations`).
 */
export function toActualTurns(events: Event[], agent: AgentDescription | undefined): Turn[] {
  const agents = agent ? listAgents(agent) : [];
  return toTurnParts(events).map((turn) => {
    const authors = new Set(turn.spoken.map(({ author }) => author));
    const details = agents
      .filter(({ name }) => authors.has(name))
      .map(({ name, instruction, tools }): [string, object] => [
        name,
        { name, instructions: instruction, toolDeclarations: tools },
      ]);
    return {
      invocationId: turn.invocationId,
      userContent: turn.question?.content ?? { parts: [] },
      ...(turn.final?.content ? { finalResponse: turn.final.content } : {}),
      intermediateData: { invocationEvents: turn.spoken.flatMap(toTurnEvent) },
      creationTimestamp: turn.question?.timestamp ?? 0,
      ...durationsOf(turn),
      appDetails: { agentDetails: Object.fromEntries(details) },
    };
  });
}

/** The event of the final response stays without its content: its tokens count. */
function toTurnEvent({ author, content, isAnswer, event }: TurnParts['spoken'][number]) {
  if (!isAnswer && !saysSomething(content)) return [];
  const { usageMetadata, modelVersion } = event;
  return [
    {
      author,
      ...(isAnswer ? {} : { content }),
      ...(usageMetadata ? { usageMetadata } : {}),
      ...(modelVersion == null ? {} : { modelVersion }),
    },
  ];
}

/**
 * How long a turn took, in seconds: each event ends what the time since the event before it went to, since the loop
 * does one thing at a time. Tools of one answer that run side by side count once.
 */
function durationsOf({ events }: TurnParts): Pick<Turn, 'duration' | 'modelDuration' | 'toolDuration'> {
  const times = events.map(({ timestamp }) => timestamp);
  const [first, last] = [times[0], times.at(-1)];
  if (first == null || last == null) return {};
  const spentOn = (isIts: (event: Event) => boolean) => {
    const gaps = events.map((event, place) =>
      place > 0 && isIts(event) ? (event.timestamp ?? 0) - (times[place - 1] ?? 0) : 0,
    );
    return milliseconds(gaps.reduce((total, gap) => total + Math.max(0, gap), 0));
  };
  return {
    duration: milliseconds(Math.max(0, last - first)),
    modelDuration: spentOn(({ usageMetadata, modelVersion }) => usageMetadata != null || modelVersion != null),
    toolDuration: spentOn(({ content }) => getFunctionResponses(content).length > 0),
  };
}

const milliseconds = (seconds: number) => Math.round(seconds * 1000) / 1000;
