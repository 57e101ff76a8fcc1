import { type Content, getFunctionCalls, getParts, getFunctionResponses } from '../../../core/content.ts';
import { type Event, isFinalResponse, isSteer, withoutRewound } from '../../../core/event.ts';
import { type AgentDescription, listAgents } from '../../../conversation/apps/hosted-agent.ts';
import type { Turn } from '../metrics/turn.ts';

export interface EvalInvocation {
  invocationId: string;
  userContent: Content;
  finalResponse?: Content;
  intermediateData: { invocationEvents: { author: string; content: Content }[] };
  /** Unix time in seconds of the user's message; 0 if there is none. */
  creationTimestamp: number;
}

/**
 * Converts a session's events to turns with the properties that every version of ADK reads. A turn contains the events
 * of an invocation, in the order of the first events; within an invocation, a prompt after an answer starts another
 * turn. Invocations without content (a state change over HTTP, a compaction) and rewound invocations are omitted.
 */
export const toEvalInvocations = (events: Event[]): EvalInvocation[] =>
  toTurnParts(events).map(({ invocationId, question, agentMessages, finalEvent }) => ({
    invocationId,
    userContent: question?.content ?? { parts: [] },
    ...(finalEvent?.content ? { finalResponse: finalEvent.content } : {}),
    intermediateData: {
      invocationEvents: agentMessages.flatMap(({ author, content, isAnswer }) =>
        !isAnswer && saysSomething(content) ? [{ author, content }] : [],
      ),
    },
    creationTimestamp: question?.timestamp ?? 0,
  }));

interface TurnParts {
  invocationId: string;
  events: Event[];
  question: Event | undefined;
  /** Messages of agents. `isAnswer` is true for the final response, unless it contains calls. */
  agentMessages: { author: string; content: Content; isAnswer: boolean; event: Event }[];
  finalEvent: Event | undefined;
}

function toTurnParts(events: Event[]): TurnParts[] {
  const groups = Map.groupBy(withoutRewound(events), (event) => event.invocationId ?? '');
  return [...groups].flatMap(([id, group]) =>
    splitByPrompts(group)
      .filter((turn) => turn.some(({ content }) => content))
      .map((turn, place) => toParts(place === 0 ? id : `${id}-${place + 1}`, turn)),
  );
}

/**
 * Splits an invocation at each prompt after an answer, because appended events may share its id or have none. A message
 * that the running invocation took belongs to its prompt.
 */
function splitByPrompts(group: Event[]): Event[][] {
  const turns: Event[][] = [[]];
  for (const event of group) {
    const turn = turns.at(-1) as Event[];
    const isAnswered = turn.some(isPrompt) && turn.some((one) => !isOfUser(one) && one.content);
    if (isPrompt(event) && isAnswered && !isSteer(event)) turns.push([event]);
    else turn.push(event);
  }
  return turns;
}

/** True if the event is a message of the user that contains more than answers to calls. */
const isPrompt = (event: Event): boolean =>
  isOfUser(event) && getParts(event.content).some((part) => !part.functionResponse && !part.functionCall);

function toQuestion(events: Event[]): Event | undefined {
  const prompts = events.filter(isPrompt);
  const [first] = prompts;
  if (!first || prompts.length === 1) return first ?? events.findLast((event) => isOfUser(event) && event.content);
  return { ...first, content: { ...first.content, parts: prompts.flatMap(({ content }) => getParts(content)) } };
}

function toParts(invocationId: string, events: Event[]): TurnParts {
  const agentEvents = events.filter((event) => !isOfUser(event) && getParts(event.content).length > 0);
  const finalEvent = agentEvents.findLast(isFinalResponse);
  const agentMessages = agentEvents.flatMap((event) => {
    const { author, content } = event;
    // Calls of long-running tools must stay in the turn's trajectory, so an event with them is not the answer.
    const isAnswer = event === finalEvent && getFunctionCalls(content).length === 0;
    return content ? [{ author: author ?? 'agent', content, isAnswer, event }] : [];
  });
  return { invocationId, events, question: toQuestion(events), agentMessages, finalEvent };
}

const isOfUser = (event: Event) => event.author?.toLowerCase() === 'user';

/** False for content that ADK leaves out of a case: empty texts, results of code, references to files. */
const saysSomething = (content: Content) =>
  getParts(content).some((part) => part.functionCall || part.functionResponse || part.text || part.inlineData);

/**
 * Converts a session's events to turns for scoring. Besides the texts, metrics need the tokens and the model of each
 * answer, durations, and the instructions and tools of each agent that spoke. Stored cases do not contain these data.
 */
export function toActualTurns(events: Event[], agent: AgentDescription | undefined): Turn[] {
  const agents = agent ? listAgents(agent) : [];
  return toTurnParts(events).map((turn) => {
    const authors = new Set(turn.agentMessages.map(({ author }) => author));
    const details = agents
      .filter(({ name }) => authors.has(name))
      .map(({ name, instruction, tools }): [string, object] => [
        name,
        { name, instructions: instruction, toolDeclarations: toDeclarations(tools) },
      ]);
    return {
      invocationId: turn.invocationId,
      userContent: turn.question?.content ?? { parts: [] },
      ...(turn.finalEvent?.content ? { finalResponse: turn.finalEvent.content } : {}),
      intermediateData: { invocationEvents: turn.agentMessages.flatMap(toTurnEvent) },
      creationTimestamp: turn.question?.timestamp ?? 0,
      ...measureDurations(turn),
      appDetails: { agentDetails: Object.fromEntries(details) },
    };
  });
}

const toDeclarations = (tools: AgentDescription['tools']) =>
  tools.length === 0
    ? []
    : [
        {
          functionDeclarations: tools.map(({ parameters, ...tool }) => ({ ...tool, parametersJsonSchema: parameters })),
        },
      ];

/** The final response keeps its event, without content, because its tokens count. */
function toTurnEvent({ author, content, isAnswer, event }: TurnParts['agentMessages'][number]) {
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
 * A turn's durations in seconds. The time before an event is the model's if it is a model's answer, and the tools' if
 * it is a tool response, because the agent loop does one step after another. Parallel calls count once.
 */
function measureDurations({ events }: TurnParts): Pick<Turn, 'duration' | 'modelDuration' | 'toolDuration'> {
  const times = events.map(({ timestamp }) => timestamp);
  const first = times[0];
  const last = times.at(-1);
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
