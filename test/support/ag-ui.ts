import { loadFrontEnd } from './front-ends.ts';

/** What the tests use of AG-UI's packages, which stand in `examples/front-ends`. */

interface Message {
  id: string;
  role: string;
  content?: unknown;
  toolCalls?: { id: string; function: { name: string; arguments: string } }[];
  toolCallId?: string;
  error?: string;
}
export type Frame = { type: string; [name: string]: unknown };
interface Interrupt {
  id: string;
  reason: string;
  message?: string;
  toolCallId?: string;
}
interface RunParameters {
  runId?: string;
  tools?: object[];
  context?: object[];
  resume?: object[];
}
/** The `HttpAgent`, as far as it is used here. */
interface Agent {
  threadId: string;
  messages: Message[];
  state: Record<string, unknown>;
  pendingInterrupts: Interrupt[];
  addMessage(message: Message): void;
  runAgent(parameters?: RunParameters, subscriber?: object): Promise<{ newMessages: Message[] }>;
  connectAgent(parameters?: RunParameters, subscriber?: object): Promise<{ newMessages: Message[] }>;
  abortRun(): void;
}
type Fetch = (url: string, init: RequestInit) => Promise<Response>;
type AgentClass = new (
  config: object,
) => Agent & {
  url: string;
  fetch: Fetch;
  requestInit(input: object): RequestInit;
  run(input: object): unknown;
};

const { HttpAgent } = (await loadFrontEnd('@ag-ui/client')) as { HttpAgent: AgentClass };
const { EventSchema } = (await loadFrontEnd('@ag-ui/core/schemas')) as {
  EventSchema: { parse(value: unknown): Frame };
};

/** An `HttpAgent` that keeps the frames that it has got, each valid by AG-UI's own schema. */
export interface Client extends Agent {
  frames: Frame[];
  /** Settles when all of an answer has come that began. */
  settled(): Promise<unknown>;
  /** Says something and runs. */
  say(content: unknown, parameters?: RunParameters): Promise<Frame[]>;
  /** Runs with what is there. */
  go(parameters?: RunParameters): Promise<Frame[]>;
}

let count = 0;

/** Returns a client of a thread; `connectAgent` does what `HttpAgent` leaves to its subclasses: POST to `/connect`. */
export function newClient(
  url: string,
  threadId: string,
  more: { messages?: Message[]; headers?: object } = {},
): Client {
  class ConnectingAgent extends HttpAgent {
    connect(input: object): unknown {
      const plain = this.url;
      const [path, query] = plain.split('?');
      this.url = `${path}/connect${query === undefined ? '' : `?${query}`}`;
      const events = this.run(input);
      // The request is made when the events are read.
      void Promise.resolve().then(() => setTimeout(() => (this.url = plain), 0));
      return events;
    }
  }
  const frames: Frame[] = [];
  const reads: Promise<unknown>[] = [];
  const config = { url, threadId, initialMessages: more.messages ?? [], headers: more.headers ?? {} };
  const agent = new ConnectingAgent({
    ...config,
    fetch: async (to: string, init: RequestInit) => {
      const response = await fetch(to, init);
      if (response.ok) reads.push(readFrames(response.clone(), frames).catch(() => undefined));
      return response;
    },
  });
  const go = async (parameters?: RunParameters) => {
    const from = frames.length;
    await agent.runAgent(parameters);
    await Promise.all(reads);
    return frames.slice(from);
  };
  return Object.assign(agent, {
    frames,
    go,
    settled: () => Promise.all(reads),
    say: (content: unknown, parameters?: RunParameters) => {
      agent.addMessage({ id: `m${++count}`, role: 'user', content });
      return go(parameters);
    },
  });
}

/** Reads frames as they come. @throws for one that AG-UI's schema refuses */
export async function readFrames(response: Response, frames: Frame[] = []): Promise<Frame[]> {
  let text = '';
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const lines = (text + chunk).split('\n\n');
    text = lines.pop() ?? '';
    for (const line of lines)
      if (line.startsWith('data: ')) frames.push(EventSchema.parse(JSON.parse(line.slice('data: '.length))));
  }
  return frames;
}

/** Returns the types of frames; pieces of one text are one. */
export const typesOf = (frames: Frame[]): string[] =>
  frames.map(({ type }) => type).filter((type, place, all) => type !== all[place - 1] || !type.endsWith('_CONTENT'));
