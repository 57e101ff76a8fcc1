import { type Content, getFunctionCalls, getParts, getFunctionResponses } from '../../../core/content.ts';
import { type Event, isFinalResponse, withoutRewound } from '../../../core/event.ts';
import { type AgentDescription, listAgents } from '../../../conversation/apps/agent-description.ts';
import type { Turn } from '../metrics/turn.ts';

/** One turn of an evaluation case that was made from a session. */
export interface EvalInvocation {
  invocationId: string;
  userContent: Content;
  finalResponse?: Content;
  intermediateData: { invocationEvents: { author: string; content: Content }[] };
  /** Unix time in seconds of the user's content; 0 where the user said nothing. */
  creationTimestamp: number;
}

/**
 * A session's conversation as turns, in the form that every version of ADK reads: events grouped by invocation in
 * first-seen order, a further turn where the user speaks again behind an answer. A group in which nothing was said (a change of state over HTTP, a compaction) is no turn, nor is a
 * rewound invocation.
 */
export const toEvalInvocations = (events: Event[]): EvalInvocation[] =>
  toTurnParts(events).map(({ invocationId, question, spoken, final }) => ({
    invocationId,
    userContent: question?.content ?? { parts: [] },
    ...(final?.content ? { finalResponse: final.content } : {}),
    intermediateData: {
      invocationEvents: spoken.flatMap(({ author, content, isAnswer }) =>
        !isAnswer && saysSomething(content) ? [{ author, content }] : [],
      ),
    },
    creationTimestamp: question?.timestamp ?? 0,
  }));

/** The events of one turn by what they are in it. */
interface TurnParts {
  invocationId: string;
  events: Event[];
  question: Event | undefined;
  /** The messages of agents; `isAnswer` is true for the final response, unless it holds calls. */
  spoken: { author: string; content: Content; isAnswer: boolean; event: Event }[];
  final: Event | undefined;
}

/** The turns of a conversation, as {@link toEvalInvocations} finds them, with their events. */
function toTurnParts(events: Event[]): TurnParts[] {
  const groups = Map.groupBy(withoutRewound(events), (event) => event.invocationId ?? '');
  return [...groups].flatMap(([id, group]) =>
    splitByPrompts(group)
      .filter((turn) => turn.some(({ content }) => content))
      .map((turn, place) => toParts(place === 0 ? id : `${id}-${place + 1}`, turn)),
  );
}

/** Cuts a group where the user says something behind an answer: events of others may share an id, or have none. */
function splitByPrompts(group: Event[]): Event[][] {
  const turns: Event[][] = [[]];
  for (const event of group) {
    const turn = turns.at(-1) as Event[];
    const isAnswered = turn.some(isPrompt) && turn.some((one) => !isUsers(one) && one.content);
    if (isPrompt(event) && isAnswered) turns.push([event]);
    else turn.push(event);
  }
  return turns;
}

/** Tells whether the user says something, more than answers to calls. */
const isPrompt = (event: Event): boolean =>
  isUsers(event) && getParts(event.content).some((part) => !part.functionResponse && !part.functionCall);

/** What the user said in a turn: prompts that came one after another are one question. */
function toQuestion(events: Event[]): Event | undefined {
  const prompts = events.filter(isPrompt);
  const [first] = prompts;
  if (!first || prompts.length === 1) return first ?? events.findLast((event) => isUsers(event) && event.content);
  return { ...first, content: { ...first.content, parts: prompts.flatMap(({ content }) => getParts(content)) } };
}

function toParts(invocationId: string, events: Event[]): TurnParts {
  const said = events.filter((event) => !isUsers(event) && getParts(event.content).length > 0);
  const final = said.findLast(isFinalResponse);
  const spoken = said.flatMap((event) => {
    const { author, content } = event;
    // The calls of a long-running tool stand in a final event: without it the trajectory would lose them.
    const isAnswer = event === final && getFunctionCalls(content).length === 0;
    return content ? [{ author: author ?? 'agent', content, isAnswer, event }] : [];
  });
  return { invocationId, events, question: toQuestion(events), spoken, final };
}

const isUsers = (event: Event) => event.author?.toLowerCase() === 'user';

/** False for a content that ADK leaves out of a case: only empty text, results of code, references to files. */
const saysSomething = (content: Content) =>
  getParts(content).some((part) => part.functionCall || part.functionResponse || part.text || part.inlineData);

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
        { name, instructions: instruction, toolDeclarations: toDeclarations(tools) },
      ]);
    return {
      invocationId: turn.invocationId,
      userContent: turn.question?.content ?? { parts: [] },
      ...(turn.final?.content ? { finalResponse: turn.final.content } : {}),
      intermediateData: { invocationEvents: turn.spoken.flatMap(toTurnEvent) },
      creationTimestamp: turn.question?.timestamp ?? 0,
      ...measureDurations(turn),
      appDetails: { agentDetails: Object.fromEntries(details) },
    };
  });
}

/** Tools as ADK's models read them. */
const toDeclarations = (tools: AgentDescription['tools']) =>
  tools.length === 0
    ? []
    : [
        {
          functionDeclarations: tools.map(({ parameters, ...tool }) => ({ ...tool, parametersJsonSchema: parameters })),
        },
      ];

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
function measureDurations({ events }: TurnParts): Pick<Turn, 'duration' | 'modelDuration' | 'toolDuration'> {
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
