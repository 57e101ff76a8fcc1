import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ProviderName } from '../../src/agent/providers/index.ts';
import { findRefusal, type Refusal, type Rules, toRefusalAnswer } from './provider-checks.ts';

/** One answer of a fake provider, in no provider's words; the server says it in the wire of the provider. */
export interface FakeAnswer {
  /** An HTTP error instead of a stream. */
  status?: number;
  headers?: Record<string, string>;
  errorBody?: unknown;
  /** The body of the error where it is no JSON. */
  errorText?: string;
  thoughts?: string[];
  /** Thoughts of an open model on the Responses API, which are no summary. */
  openThoughts?: string[];
  /** OpenRouter's `reasoning_details`. */
  details?: object[];
  signature?: string;
  text?: string[];
  /** A refusal of OpenAI's models, which is no text. */
  refusal?: string[];
  image?: string;
  /** `arguments` is JSON text, or what a broken model sends instead. */
  calls?: { id?: string; name: string; arguments: string; signature?: string }[];
  finish?: 'stop' | 'length' | 'filter';
  /**
   * `end`: the answer breaks off before its finish; `unreasoned`: it ends with no reason; `hang`: nothing more comes;
   * `silent`: nothing comes at all.
   */
  stop?: 'end' | 'unreasoned' | 'hang' | 'silent';
  usage?: { prompt: number; cached: number; answer: number; thoughts: number };
  citations?: { uri: string; title: string }[];
}

export interface FakeProvider {
  baseUrl: string;
  requests: { path: string; headers: IncomingHttpHeaders; body: Record<string, unknown> }[];
  /** What was wrong with requests, as a real provider sees it. */
  refused: Refusal[];
  /** Resolves when the server has taken a request. */
  requested: Promise<void>;
  /** Resolves when a client has dropped a connection before its answer was over. */
  dropped: Promise<void>;
  /** Breaks every connection. */
  cut: () => void;
  /** @throws {Error} where a request was refused that need not have been. */
  close: () => Promise<void>;
}

/** How a server of a provider refuses requests. */
export interface Strictness {
  /** [those of the provider] */
  rules?: Rules;
  /** True: requests may be refused, as by a model that sees no pictures [false]. */
  mayRefuse?: boolean;
}

const USAGE = { prompt: 100, cached: 40, answer: 20, thoughts: 7 };

/**
 * A server on loopback that speaks one provider's wire and gives the scripted answers in order, the last one for ever,
 * or what a function makes of each request.
 * What a real provider refuses is refused in its words, and does not use up an answer.
 */
export async function startFakeProvider(
  provider: ProviderName,
  script: FakeAnswer[] | ((body: Record<string, unknown>) => FakeAnswer),
  { rules = provider, mayRefuse = false }: Strictness = {},
): Promise<FakeProvider> {
  const requests: FakeProvider['requests'] = [];
  const refused: Refusal[] = [];
  const requested = Promise.withResolvers<void>();
  const dropped = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      const body = JSON.parse(text) as Record<string, unknown>;
      requests.push({ path: request.url ?? '', headers: request.headers, body });
      requested.resolve();
      response.on('close', () => {
        if (!response.writableFinished) dropped.resolve();
      });
      const refusal = findRefusal(rules, text);
      if (refusal) {
        refused.push(refusal);
        const answer = toRefusalAnswer(rules, refusal);
        response.writeHead(answer.status, { 'content-type': answer.contentType }).end(answer.body);
        return;
      }
      // Gemini is asked for a stream by the path, the others by the body.
      const streams = provider === 'google' ? /:stream/.test(request.url ?? '') : body['stream'] === true;
      const next = (all: FakeAnswer[]) => all[Math.min(requests.length - refused.length, all.length) - 1] ?? {};
      give(response, provider, typeof script === 'function' ? script(body) : next(script), streams);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    requests,
    refused,
    requested: requested.promise,
    dropped: dropped.promise,
    cut: () => server.closeAllConnections(),
    close: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      if (!mayRefuse) expectNoneRefused(refused);
    },
  };
}

/** @throws {Error} with what real providers refuse, though the code under test went on in another way. */
export function expectNoneRefused(refused: Refusal[]): void {
  if (refused.length > 0) throw new Error(`A real provider refuses this: ${JSON.stringify(refused)}`);
}

function give(response: ServerResponse, provider: ProviderName, answer: FakeAnswer, streams: boolean): void {
  if (answer.stop === 'silent') return;
  if (answer.status !== undefined) {
    response.writeHead(answer.status, { 'content-type': 'application/json', ...answer.headers });
    response.end(
      answer.errorText ??
        JSON.stringify(answer.errorBody ?? { error: { message: 'no', type: 'some_error', code: 'some_code' } }),
    );
    return;
  }
  if (!streams) {
    giveWhole(response, JSON.stringify(WHOLES[provider](answer)), answer);
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const events = WIRES[provider](answer, answer.stop === undefined);
  for (const event of events) {
    const named =
      provider === 'anthropic' || provider === 'openai' ? `event: ${(event as { type: string }).type}\n` : '';
    response.write(`${named}data: ${JSON.stringify(event)}\n\n`);
  }
  if (answer.stop === 'hang') return;
  response.end(WIRES[provider] === chatCompletions && answer.stop !== 'end' ? 'data: [DONE]\n\n' : '');
}

/** Sends a whole answer. A provider has it when it begins to send, so one that breaks off is not all that was said. */
function giveWhole(response: ServerResponse, body: string, { stop }: FakeAnswer): void {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  if (stop === undefined || stop === 'unreasoned') response.end(body);
  else response.write(body.slice(0, body.length / 2), () => stop === 'end' && response.destroy());
}

type Wire = (answer: FakeAnswer, finished: boolean) => unknown[];

const chatCompletions: Wire = (answer, finished) => {
  const { prompt, cached, answer: tokens, thoughts } = { ...USAGE, ...answer.usage };
  const chunk = (delta: object, finish: string | null = null) => ({
    id: 'c1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'fake-model-2026',
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const reasons = { stop: answer.calls ? 'tool_calls' : 'stop', length: 'length', filter: 'content_filter' };
  return [
    ...(answer.thoughts ?? []).map((text) => chunk({ reasoning_content: text })),
    ...(answer.details ?? []).map((each) => chunk({ reasoning: '', reasoning_details: [each] })),
    ...(answer.text ?? []).map((text) => chunk({ role: 'assistant', content: text })),
    ...(answer.refusal ?? []).map((refusal) => chunk({ role: 'assistant', refusal })),
    ...(answer.calls ?? []).map((call, index) =>
      chunk({
        tool_calls: [
          { index, id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } },
        ],
      }),
    ),
    ...(finished ? [chunk({}, reasons[answer.finish ?? 'stop'])] : []),
    ...(finished
      ? [
          {
            ...chunk({}),
            choices: [],
            usage: {
              prompt_tokens: prompt,
              completion_tokens: tokens + thoughts,
              total_tokens: prompt + tokens + thoughts,
              prompt_tokens_details: { cached_tokens: cached },
              completion_tokens_details: { reasoning_tokens: thoughts },
            },
          },
        ]
      : []),
  ];
};

const responses: Wire = (answer, finished) => {
  const { prompt, cached, answer: tokens, thoughts } = { ...USAGE, ...answer.usage };
  const events: Record<string, unknown>[] = [
    { type: 'response.created', response: { id: 'r1', created_at: 1, model: 'fake-model-2026' } },
  ];
  let index = 0;
  if (answer.thoughts) {
    const item = { type: 'reasoning', id: 'rs_1', encrypted_content: answer.signature ?? 'sig', summary: [] };
    events.push({ type: 'response.output_item.added', output_index: index, item });
    for (const text of answer.thoughts) {
      events.push({
        type: 'response.reasoning_summary_text.delta',
        item_id: 'rs_1',
        output_index: index,
        summary_index: 0,
        delta: text,
      });
    }
    events.push({ type: 'response.output_item.done', output_index: index, item });
    index += 1;
  }
  if (answer.openThoughts) {
    const item = { type: 'reasoning', id: 'rs_1', encrypted_content: null, summary: [], content: [] };
    events.push({ type: 'response.output_item.added', output_index: index, item });
    for (const delta of answer.openThoughts)
      events.push({ type: 'response.reasoning_text.delta', item_id: 'rs_1', output_index: index, delta });
    events.push({ type: 'response.output_item.done', output_index: index, item });
    index += 1;
  }
  if (answer.refusal) {
    const item = { type: 'message', id: 'm1', role: 'assistant', content: [] };
    events.push({ type: 'response.output_item.added', output_index: index, item });
    for (const delta of answer.refusal)
      events.push({ type: 'response.refusal.delta', item_id: 'm1', output_index: index, content_index: 0, delta });
    const refusal = answer.refusal.join('');
    events.push({ type: 'response.refusal.done', item_id: 'm1', output_index: index, content_index: 0, refusal });
    events.push({ type: 'response.output_item.done', output_index: index, item });
    index += 1;
  }
  if (answer.text) {
    events.push({
      type: 'response.output_item.added',
      output_index: index,
      item: { type: 'message', id: 'm1', role: 'assistant', status: 'in_progress', content: [] },
    });
    for (const text of answer.text) {
      events.push({
        type: 'response.output_text.delta',
        item_id: 'm1',
        output_index: index,
        content_index: 0,
        delta: text,
        logprobs: [],
      });
    }
    for (const [place, citation] of (answer.citations ?? []).entries()) {
      events.push({
        type: 'response.output_text.annotation.added',
        item_id: 'm1',
        output_index: index,
        content_index: 0,
        annotation_index: place,
        annotation: { type: 'url_citation', start_index: 0, end_index: 1, url: citation.uri, title: citation.title },
      });
    }
    events.push({
      type: 'response.output_item.done',
      output_index: index,
      item: { type: 'message', id: 'm1', role: 'assistant', status: 'completed', content: [] },
    });
    index += 1;
  }
  for (const call of answer.calls ?? []) {
    const item = { type: 'function_call', id: `fc_${index}`, call_id: call.id, name: call.name };
    events.push({ type: 'response.output_item.added', output_index: index, item: { ...item, arguments: '' } });
    events.push({
      type: 'response.function_call_arguments.delta',
      item_id: item.id,
      output_index: index,
      delta: call.arguments,
    });
    events.push({
      type: 'response.output_item.done',
      output_index: index,
      item: { ...item, arguments: call.arguments, status: 'completed' },
    });
    index += 1;
  }
  if (!finished) return events;
  const reason = { stop: null, length: { reason: 'max_output_tokens' }, filter: { reason: 'content_filter' } };
  const incomplete = reason[answer.finish ?? 'stop'];
  events.push({
    type: incomplete ? 'response.incomplete' : 'response.completed',
    response: {
      id: 'r1',
      created_at: 1,
      model: 'fake-model-2026',
      incomplete_details: incomplete,
      usage: {
        input_tokens: prompt,
        input_tokens_details: { cached_tokens: cached },
        output_tokens: tokens + thoughts,
        output_tokens_details: { reasoning_tokens: thoughts },
      },
    },
  });
  return events;
};

const messages: Wire = (answer, finished) => {
  const { prompt, cached, answer: tokens, thoughts } = { ...USAGE, ...answer.usage };
  const usage = {
    input_tokens: prompt - cached,
    cache_read_input_tokens: cached,
    cache_creation_input_tokens: 0,
    output_tokens: 1,
  };
  const events: Record<string, unknown>[] = [
    {
      type: 'message_start',
      message: { id: 'm1', type: 'message', role: 'assistant', model: 'fake-model-2026', content: [], usage },
    },
  ];
  let index = 0;
  const block = (start: object, deltas: object[]) => {
    events.push({ type: 'content_block_start', index, content_block: start });
    for (const delta of deltas) events.push({ type: 'content_block_delta', index, delta });
    if (finished) events.push({ type: 'content_block_stop', index });
    index += 1;
  };
  if (answer.thoughts) {
    block({ type: 'thinking', thinking: '' }, [
      ...answer.thoughts.map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: answer.signature ?? 'sig' },
    ]);
  }
  if (answer.text) {
    block(
      { type: 'text', text: '' },
      answer.text.map((text) => ({ type: 'text_delta', text })),
    );
  }
  for (const call of answer.calls ?? []) {
    block({ type: 'tool_use', id: call.id, name: call.name, input: {} }, [
      { type: 'input_json_delta', partial_json: call.arguments },
    ]);
  }
  if (!finished) return events;
  const reasons = { stop: answer.calls ? 'tool_use' : 'end_turn', length: 'max_tokens', filter: 'refusal' };
  events.push({
    type: 'message_delta',
    delta: { stop_reason: reasons[answer.finish ?? 'stop'], stop_sequence: null },
    usage: {
      ...usage,
      output_tokens: tokens + thoughts,
      output_tokens_details: { thinking_tokens: thoughts },
    },
  });
  events.push({ type: 'message_stop' });
  return events;
};

const generateContent: Wire = (answer, finished) => {
  const { prompt, cached, answer: tokens, thoughts } = { ...USAGE, ...answer.usage };
  const chunk = (parts: object[], more: object = {}) => ({
    candidates: [{ index: 0, content: { role: 'model', parts }, ...more }],
    modelVersion: 'fake-model-2026',
    responseId: 'r1',
  });
  const chunks: object[] = [
    ...(answer.thoughts ?? []).map((text) =>
      chunk([{ text, thought: true, thoughtSignature: answer.signature ?? 'c2ln' }]),
    ),
    ...(answer.text ?? []).map((text) => chunk([{ text }])),
    ...(answer.image ? [chunk([{ inlineData: { mimeType: 'image/png', data: answer.image } }])] : []),
    ...(answer.calls ?? []).map((call) =>
      chunk([
        {
          functionCall: { ...(call.id ? { id: call.id } : {}), name: call.name, args: tryParse(call.arguments) },
          ...(call.signature ? { thoughtSignature: call.signature } : {}),
        },
      ]),
    ),
  ];
  if (!finished) return chunks;
  const reasons = { stop: 'STOP', length: 'MAX_TOKENS', filter: 'SAFETY' };
  const grounding = answer.citations
    ? { groundingMetadata: { groundingChunks: answer.citations.map((web) => ({ web })), webSearchQueries: ['q'] } }
    : {};
  chunks.push({
    ...chunk([], { finishReason: reasons[answer.finish ?? 'stop'], ...grounding }),
    usageMetadata: {
      promptTokenCount: prompt,
      cachedContentTokenCount: cached,
      candidatesTokenCount: tokens,
      thoughtsTokenCount: thoughts,
      totalTokenCount: prompt + tokens + thoughts,
    },
  });
  return chunks;
};

/** Gemini's arguments are JSON already: what cannot be parsed is sent as the text that it is. */
function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const WIRES: Record<ProviderName, Wire> = {
  'openai-compatible': chatCompletions,
  openai: responses,
  anthropic: messages,
  google: generateContent,
};

/** The last event of a stream of Responses is the whole answer but for the output. */
function wholeResponse(answer: FakeAnswer): object {
  const { response } = responses(answer, true).at(-1) as { response: object };
  const {
    thoughts,
    openThoughts,
    signature = 'sig',
    text,
    refusal,
    citations = [],
    calls = [],
    finish = 'stop',
  } = answer;
  const message = { type: 'message', id: 'm1', role: 'assistant', status: 'completed' };
  const annotations = citations.map(({ uri, title }) => ({
    type: 'url_citation',
    start_index: 0,
    end_index: 1,
    url: uri,
    title,
  }));
  const said = { type: 'output_text', text: text?.join(''), annotations, logprobs: [] };
  return {
    ...response,
    object: 'response',
    status: finish === 'stop' ? 'completed' : 'incomplete',
    error: null,
    output: [
      ...(thoughts
        ? [
            {
              type: 'reasoning',
              id: 'rs_1',
              encrypted_content: signature,
              summary: [{ type: 'summary_text', text: thoughts.join('') }],
            },
          ]
        : []),
      ...(openThoughts
        ? [
            {
              type: 'reasoning',
              id: 'rs_1',
              encrypted_content: null,
              summary: [],
              content: openThoughts.map((each) => ({ type: 'reasoning_text', text: each })),
            },
          ]
        : []),
      ...(refusal ? [{ ...message, content: [{ type: 'refusal', refusal: refusal.join('') }] }] : []),
      ...(text ? [{ ...message, content: [said] }] : []),
      ...calls.map((call, index) => ({
        type: 'function_call',
        id: `fc_${index + (thoughts ? 1 : 0) + (text ? 1 : 0)}`,
        call_id: call.id,
        name: call.name,
        arguments: call.arguments,
        status: 'completed',
      })),
    ],
  };
}

function wholeCompletion(answer: FakeAnswer): object {
  const events = chatCompletions(answer, true) as { choices: { finish_reason: string }[]; usage?: object }[];
  const [last, usage] = events.slice(-2);
  const { thoughts, details, text, refusal, calls } = answer;
  const message = {
    role: 'assistant',
    content: text?.join('') ?? null,
    refusal: refusal?.join('') ?? null,
    ...(thoughts && { reasoning_content: thoughts.join('') }),
    ...(details && { reasoning_details: details }),
    ...(calls && {
      tool_calls: calls.map((call) => ({
        id: call.id,
        type: 'function',
        function: { name: call.name, arguments: call.arguments },
      })),
    }),
  };
  const finish = answer.stop === 'unreasoned' ? null : last?.choices[0]?.finish_reason;
  return { ...usage, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: finish }] };
}

function wholeMessage(answer: FakeAnswer): object {
  const events = messages(answer, true) as { message?: object; delta?: { stop_reason: string }; usage?: object }[];
  const { delta, usage } = events.at(-2) ?? {};
  const { thoughts, signature = 'sig', text, calls = [] } = answer;
  return {
    ...events[0]?.message,
    content: [
      ...(thoughts ? [{ type: 'thinking', thinking: thoughts.join(''), signature }] : []),
      ...(text ? [{ type: 'text', text: text.join(''), citations: null }] : []),
      ...calls.map((call) => ({ type: 'tool_use', id: call.id, name: call.name, input: tryParse(call.arguments) })),
    ],
    stop_reason: answer.stop === 'unreasoned' ? null : delta?.stop_reason,
    stop_sequence: null,
    usage,
  };
}

/** Gemini joins the texts of neighbouring parts. */
function wholeContent(answer: FakeAnswer): object {
  const { thoughts, text } = answer;
  const joined = {
    ...answer,
    ...(thoughts && { thoughts: [thoughts.join('')] }),
    ...(text && { text: [text.join('')] }),
  };
  const chunks = generateContent(joined, true) as { candidates: { content: { parts: object[] } }[] }[];
  const parts = chunks.flatMap(({ candidates }) => candidates[0]?.content.parts ?? []);
  const last = chunks.at(-1);
  return { ...last, candidates: [{ ...last?.candidates[0], content: { role: 'model', parts } }] };
}

const WHOLES: Record<ProviderName, (answer: FakeAnswer) => object> = {
  'openai-compatible': wholeCompletion,
  openai: wholeResponse,
  anthropic: wholeMessage,
  google: wholeContent,
};
