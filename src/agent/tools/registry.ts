import { getAnswerText, type JsonObject } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import type { EgressPolicy } from '../../platform/net/egress.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import { listArtifacts, loadArtifacts, saveArtifact } from './artifacts.ts';
import { calculator } from './calculator.ts';
import { promptPerson, sleepFor, sleepUntil, waitForSignal } from './waits.ts';
import { webFetch } from './web-fetch.ts';

export interface ToolSettings {
  now?: () => Date;
  /** Addresses that the tool `web_fetch` may reach. Default: public https addresses only. */
  egress?: EgressPolicy;
}

export function builtInTools({ now, egress = { allowLoopback: false } }: ToolSettings = {}): Map<string, Tool> {
  const tools = [
    currentTime(now),
    calculator,
    webFetch(egress),
    loadMemory,
    saveArtifact,
    loadArtifacts,
    listArtifacts,
    getUserChoice,
    requestInput,
    promptPerson,
    sleepFor,
    sleepUntil,
    waitForSignal,
    readState,
    writeState,
    exitLoop,
  ];
  return new Map(tools.map((tool) => [tool.name, tool]));
}

/**
 * Tools in the order of the names, without duplicates.
 * @throws {AgentError} `unknown_tool` for the first unknown name, with the same message as VeADK's harness
 */
export function findTools(available: ReadonlyMap<string, Tool>, names: string[]): Tool[] {
  return [...new Set(names)].map((name) => {
    const tool = available.get(name);
    if (tool) return tool;
    const allNames = [...available.keys()].sort().join(', ');
    throw new AgentError('unknown_tool', `Tool \`${name}\` is not a supported built-in tool. Available: ${allNames}`);
  });
}

const currentTime = (now: () => Date = () => new Date()): Tool => ({
  name: 'current_time',
  description: 'Tells the current date and time. Use it whenever the answer depends on what time or day it is now.',
  parameters: toParameters({
    timeZone: { type: 'string', maxLength: 64, description: 'IANA time zone such as Europe/Berlin; UTC if left out.' },
  }),
  needsConfirmation: false,
  effect: 'none',
  async run(args) {
    const timeZone = typeof args['timeZone'] === 'string' ? args['timeZone'] : 'UTC';
    return inZone(now(), timeZone);
  },
});

function inZone(time: Date, timeZone: string) {
  const format = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat('sv-SE', { timeZone, ...options });
  try {
    return {
      time: format({ dateStyle: 'short', timeStyle: 'medium' }).format(time),
      weekday: new Intl.DateTimeFormat('en-US', { timeZone, weekday: 'long' }).format(time),
      timeZone,
      utc: time.toISOString(),
    };
  } catch {
    throw new Error(`\`${timeZone}\` is not a known time zone. Use an IANA name such as Europe/Berlin.`);
  }
}

const waits = { needsConfirmation: false, effect: 'none', longRunning: true } as const;

/** Same as ADK's tool `get_user_choice`: the user's choice, the function response, comes with a later request. */
const getUserChoice: Tool = {
  name: 'get_user_choice',
  description: 'Shows the user some options and waits until one is chosen.',
  parameters: toParameters(
    { options: { type: 'array', items: { type: 'string', maxLength: 500 }, minItems: 1, maxItems: 50 } },
    'options',
  ),
  ...waits,
  run: async () => undefined,
};

const requestInput: Tool = {
  name: 'request_input',
  description: 'Asks the user for something that you need to go on, and waits for the answer.',
  parameters: toParameters(
    { message: { type: 'string', minLength: 1, maxLength: 2_000, description: 'What you need.' } },
    'message',
  ),
  ...waits,
  run: async () => undefined,
};

/** Same as ADK's tool `exit_loop`: the call ends the `loop` agent. */
export const exitLoop: Tool = {
  name: 'exit_loop',
  description: 'Ends the loop. Call it only when you are told to end it.',
  parameters: toParameters({}),
  needsConfirmation: false,
  effect: 'none',
  async run(_args, { actions }) {
    actions.escalate = true;
    actions.skipSummarization = true;
    return { result: null };
  },
};

const loadMemory: Tool = {
  name: 'load_memory',
  description: 'Looks for what was said in earlier conversations with this user. Use a few words of what you look for.',
  parameters: toParameters({ query: { type: 'string', minLength: 1, maxLength: 500 } }, 'query'),
  needsConfirmation: false,
  effect: 'none',
  async run(args, { services }) {
    const memories = await services.searchMemory(String(args['query']));
    return {
      memories: memories.map(({ author, timestamp, content }) => ({ author, timestamp, text: getAnswerText(content) })),
    };
  },
};

/** Maximum size of a state value that the tool `write_state` stores, in characters of JSON. */
const MAX_VALUE = 32_000;

const readState: Tool = {
  name: 'read_state',
  description: 'Reads values that were kept in the state of this conversation; without keys it lists the keys.',
  parameters: toParameters({ keys: { type: 'array', items: { type: 'string' }, maxItems: 50 } }),
  needsConfirmation: false,
  effect: 'none',
  async run(args, { state }) {
    const keys = args['keys'] as string[] | undefined;
    if (!keys || keys.length === 0) return { keys: Object.keys(state).sort() };
    const values = Object.create(null) as JsonObject;
    for (const key of keys) values[key] = Object.hasOwn(state, key) ? state[key] : null;
    return { values };
  },
};

/**
 * A key with the prefix `user:` belongs to the user, a key with `temp:` to the invocation. A key with `app:` is an
 * error, because the prompt of one user must not change sessions of others.
 */
const writeState: Tool = {
  name: 'write_state',
  description:
    'Keeps a value in the state of this conversation under a key; ' +
    '`user:` in front of the key keeps it for all conversations of the user.',
  parameters: toParameters(
    {
      key: {
        type: 'string',
        minLength: 1,
        maxLength: 200,
        pattern: '^(?!app:)',
        description: 'Not with `app:` in front.',
      },
      value: { description: 'Any JSON value; null clears it.' },
    },
    'key',
    'value',
  ),
  needsConfirmation: false,
  effect: 'idempotent',
  async run(args, { actions }) {
    const key = String(args['key']);
    if (JSON.stringify(args['value']).length > MAX_VALUE)
      throw new Error(`The value is larger than ${MAX_VALUE} characters.`);
    actions.stateDelta = Object.assign(Object.create(null) as JsonObject, { [key]: args['value'] });
    return { kept: key };
  },
};
