/** The AI SDK, as tests use it: its packages stand in `examples/front-ends`. */

export type Json = Record<string, unknown>;
export type Chunk = Json & { type: string };
export interface UiMessage {
  id: string;
  role: string;
  parts: Json[];
}
/** The packages, as far as tests use them. */
export interface Sdk {
  AbstractChat: new (init: object) => Chat;
  DefaultChatTransport: new (options: object) => Transport;
  uiMessageChunkSchema: () => { validate(value: unknown): Promise<{ success: boolean; error?: Error }> };
  readUIMessageStream(options: object): AsyncIterable<UiMessage>;
  lastAssistantMessageIsCompleteWithApprovalResponses: unknown;
  lastAssistantMessageIsCompleteWithToolCalls: unknown;
}
export interface Transport {
  sendMessages(options: object): Promise<ReadableStream<Chunk>>;
  reconnectToStream(options: object): Promise<ReadableStream<Chunk> | null>;
}
export interface Chat {
  status: string;
  error?: Error;
  messages: UiMessage[];
  sendMessage(message: object): Promise<void>;
  resumeStream(): Promise<void>;
  addToolApprovalResponse(answer: object): Promise<void>;
  addToolOutput(answer: object): Promise<void>;
}

/** A chat as `useChat` holds one. */
export function newChat(
  { AbstractChat, DefaultChatTransport }: Sdk,
  api: string,
  id: string,
  { messages = [], auto, ...rest }: { fetch?: typeof fetch; messages?: UiMessage[]; auto?: unknown } = {},
): Chat {
  const state = {
    status: 'ready',
    error: undefined,
    messages,
    pushMessage: (message: UiMessage) => void (state.messages = [...state.messages, message]),
    popMessage: () => void (state.messages = state.messages.slice(0, -1)),
    replaceMessage: (index: number, message: UiMessage) =>
      void (state.messages = state.messages.with(index, structuredClone(message))),
    snapshot: <T>(value: T): T => structuredClone(value),
  };
  return new AbstractChat({
    id,
    state,
    transport: new DefaultChatTransport({ api, ...rest }),
    sendAutomaticallyWhen: auto,
  });
}
