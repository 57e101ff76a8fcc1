import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, fetch } from 'undici';
import { type Message, promptFor, type ScriptedCall, answerFor } from '../test/fault/support/model-server.ts';

/** The load of `npm run soak`: conversations, each checked when it is over and then deleted. */

/** The one that every door serves, `/harness/invoke` too. */
export const APP = 'harness_agent';
/** Longest time until a piece of work is complete, kills included. */
const WITHIN_MS = 240_000;
const PAUSE_MS = 500;
const ATTEMPT_MS = 60_000;
const USERS = 20;

/** What is counted, and what must not be. */
export interface Tally {
  requests: number;
  answered: number;
  conversations: number;
  /** Answers that a client repeats: the replica is gone, is stopping, or the session is busy. By kind. */
  repeated: Map<string, number>;
  /** Sentences about lost or doubled work, and answers that no client should get. */
  wrong: string[];
}

interface Sent {
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A prompt in a session; the same key again is the same call. */
interface Turn {
  user: string;
  session: string;
  prompt: string;
  key: string;
}

interface Door {
  toRequest: (turn: Turn) => Sent;
  /** What only an answer contains that is complete. */
  complete: string;
  /** True if nothing of the turn stays: its messages are the whole chat. */
  isTemporary?: true;
}

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Sent => ({
  method: 'POST',
  path,
  body,
  headers,
});
const words = (text: string) => ({ role: 'user', parts: [{ text }] });
const keyed = (key: string) => ({ 'idempotency-key': key });

const toA2a = (method: string): Door => ({
  toRequest: ({ user, session, prompt, key }) => {
    const message = { messageId: key, contextId: session, role: 'ROLE_USER', parts: [{ text: prompt }] };
    const body = { jsonrpc: '2.0', id: 1, method, params: { message } };
    return post(`/a2a/${APP}?user_id=${user}`, body, { 'a2a-version': '1.0' });
  },
  complete: 'TASK_STATE_COMPLETED',
});

const toChat = (stream: boolean): Door => ({
  // Without a key: a client that leaves has cancelled the call.
  toRequest: ({ user, prompt }) =>
    post(`/v1/chat/completions?user_id=${user}`, {
      model: APP,
      stream,
      messages: [{ role: 'user', content: prompt }],
    }),
  complete: '"finish_reason":"stop"',
  isTemporary: true,
});

const toResponses = (stream: boolean): Door => ({
  toRequest: ({ user, session, prompt, key }) => {
    const conversation = `conv_${Buffer.from([APP, user, session].join('\n')).toString('base64url')}`;
    return post(`/v1/responses?user_id=${user}`, { model: APP, stream, conversation, input: prompt }, keyed(key));
  },
  complete: stream ? 'event: response.completed' : '"status":"completed","error"',
});

const toRun = (path: string): Door => ({
  toRequest: ({ user, session, prompt, key }) =>
    post(path, { appName: APP, userId: user, sessionId: session, newMessage: words(prompt) }, keyed(key)),
  complete: '"answer ',
});

const DOORS: Record<string, Door> = {
  '/run': toRun('/run'),
  '/run_sse': toRun('/run_sse'),
  '/harness/invoke': {
    toRequest: ({ user, session, prompt, key }) =>
      post(
        '/harness/invoke',
        { prompt, harness_name: APP, run_agent_request: { app_name: APP, user_id: user, session_id: session } },
        keyed(key),
      ),
    complete: 'answer ',
  },
  MCP: {
    toRequest: ({ user, session, prompt, key }) =>
      post(
        `/mcp?user_id=${user}`,
        { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: APP, arguments: { prompt, session } } },
        { ...keyed(key), accept: 'application/json, text/event-stream' },
      ),
    complete: '"status":"succeeded"',
  },
  A2A: toA2a('SendMessage'),
  'A2A, stream': toA2a('SendStreamingMessage'),
  'AG-UI': {
    toRequest: ({ user, session, prompt, key }) => {
      const messages = [{ id: `m-${key}`, role: 'user', content: prompt }];
      const more = { tools: [], context: [], state: {} };
      return post(`/ag-ui/${APP}?user_id=${user}`, { threadId: session, runId: key, messages, ...more });
    },
    complete: '"outcome":{"type":"success"}',
  },
  'AI SDK': {
    toRequest: ({ user, session, prompt, key }) => {
      const message = { id: `m-${key}`, role: 'user', parts: [{ type: 'text', text: prompt }] };
      return post(`/ai-sdk/${APP}/chat?user_id=${user}`, { id: session, messages: [message] }, keyed(key));
    },
    complete: '"finishReason":"stop"',
  },
  'OpenAI chat': toChat(false),
  'OpenAI chat, stream': toChat(true),
  'OpenAI response': toResponses(false),
  'OpenAI response, stream': toResponses(true),
};

/** What the model of the soak does: as many calls as the prompt says, or the one wait that its id begins with. */
export function script(messages: Message[], { id, calls }: { id: string; calls: number }): string | ScriptedCall[] {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  const done = messages.slice(last + 1).filter(({ role }) => role === 'tool').length;
  const [kind = ''] = id.split('-');
  const waits: Record<string, ScriptedCall> = {
    sleep: { name: 'sleep_for', arguments: { seconds: calls } },
    signal: { name: 'wait_for_signal', arguments: { name: id } },
    pay: { name: 'pay', arguments: { for: id } },
  };
  const wait = waits[kind];
  if (wait) return done === 0 ? [wait] : answerFor(id);
  const each: ScriptedCall[] = [
    { name: 'write_state', arguments: { key: `k${id.length}`, value: id } },
    { name: 'save_artifact', arguments: { name: 'note', text: id } },
    { name: 'calculator', arguments: { expression: '17 * 23' } },
  ];
  const call = done < calls ? each[done % each.length] : undefined;
  return call ? [call] : answerFor(id);
}

/** How often each prompt and each answer is stored in a session, by SQL. */
export type CountStored = (
  user: string,
  session: string,
  ids: string[],
) => Promise<{ said: number[]; answered: number[] }>;

export interface World {
  /** Where the replicas are; the first one is never killed. */
  urls: () => string[];
  tally: Tally;
  countStored: CountStored;
  /** Operations that `pay` made for a prompt. */
  payments: (id: string) => number;
  webhook: string;
  /** Ids of the deliveries that said that an invocation ended. */
  deliveries: (invocationId: string) => number;
}

const pick = <T>(from: readonly T[]): T => from[Math.floor(Math.random() * from.length)] as T;
const whole = (from: number, to: number) => from + Math.floor(Math.random() * (to - from + 1));

export class Load {
  readonly #world: World;
  readonly #agent = new Agent({ connections: 64, keepAliveTimeout: 4_000 });
  #count = 0;

  constructor(world: World) {
    this.#world = world;
  }

  /** Sends until the answer has `complete`, at one replica or another. @returns it; undefined where it never comes */
  async send(kind: string, sent: Sent, complete = ''): Promise<string | undefined> {
    const { tally, urls } = this.#world;
    const until = performance.now() + WITHIN_MS;
    let last = '';
    while (performance.now() < until) {
      tally.requests++;
      try {
        const response = await fetch(`${pick(urls())}${sent.path}`, {
          method: sent.method,
          headers: { ...(sent.body !== undefined && { 'content-type': 'application/json' }), ...sent.headers },
          ...(sent.body !== undefined && { body: JSON.stringify(sent.body) }),
          dispatcher: this.#agent,
          signal: AbortSignal.timeout(ATTEMPT_MS),
        });
        const text = await response.text();
        last = `${response.status} ${text.slice(-300)}`;
        if (response.status < 300 && text.includes(complete)) {
          tally.answered++;
          return text;
        }
        // What was deleted before its answer was lost is no more.
        if (response.status === 404 && sent.method === 'DELETE') return text;
        if (![200, 202, 408, 409, 429, 503].includes(response.status)) {
          this.#blame(`${kind}: ${sent.method} ${sent.path}: ${last}`);
          return undefined;
        }
        this.#repeat(`${kind}: ${response.status < 300 ? 'not complete' : response.status}`);
      } catch (error) {
        const cause = (error as { cause?: { code?: string } }).cause?.code ?? (error as Error).name;
        this.#repeat(`${kind}: ${cause}`);
      }
      await sleep(PAUSE_MS);
    }
    this.#blame(`${kind}: ${sent.method} ${sent.path} has no answer after ${WITHIN_MS / 1000} s; last: ${last}`);
    return undefined;
  }

  #blame(sentence: string): void {
    this.#world.tally.wrong.push(sentence);
    console.log(`! ${sentence}`);
  }

  #repeat(kind: string): void {
    const { repeated } = this.#world.tally;
    repeated.set(kind, (repeated.get(kind) ?? 0) + 1);
  }

  /** A conversation from its session to its deletion. */
  async converse(): Promise<void> {
    const { tally } = this.#world;
    const n = this.#count++;
    const [user, session] = [`u${n % USERS}`, `c${n}`];
    const of = `/apps/${APP}/users/${user}`;
    const path = `${of}/sessions/${session}`;
    if ((await this.send('create', post(`${of}/sessions`, { sessionId: session }, keyed(session)))) === undefined)
      return;
    const ids: string[] = [];
    for (let turn = 0; turn < whole(1, 5); turn++) {
      const following = Math.random() < 0.3 ? this.#follow(path, user, session) : undefined;
      const kind = Math.random() < 0.7 ? 'say' : pick(['sleep', 'signal', 'pay', 'background']);
      const id = `${kind}-${n}-${turn}`;
      if (kind !== 'say') await this.#wait(kind, { user, session, id });
      const stays = kind !== 'say' || (await this.#say({ user, session, id }));
      if (stays) ids.push(id);
      following?.abort();
      await sleep(whole(100, 3_000));
    }
    await this.#useRest(of, path, n);
    const copy = `f${n}`;
    const hasCopy =
      Math.random() < 0.3 &&
      (await this.send('fork', post(`${path}/fork`, { sessionId: copy }, keyed(copy)))) !== undefined;
    for (const kept of [session, ...(hasCopy ? [copy] : [])]) {
      const { said, answered } = await this.#world.countStored(user, kept, ids);
      for (const [place, id] of ids.entries())
        if (said[place] !== 1 || answered[place] !== 1)
          this.#blame(`${kept}: ${id} is stored ${said[place]} times, its answer ${answered[place]} times`);
    }
    await sleep(whole(10_000, 90_000));
    const remove = (each: string) => this.#remove(`${of}/sessions/${each}`);
    await Promise.all([remove(session), ...(hasCopy ? [remove(copy)] : [])]);
    tally.conversations++;
  }

  /** Says something at one door. @returns true if it stays in the session */
  async #say({ user, session, id }: { user: string; session: string; id: string }): Promise<boolean> {
    const name = pick(Object.keys(DOORS));
    const { toRequest, complete, isTemporary } = DOORS[name] as Door;
    const prompt = promptFor({ id, calls: whole(0, 2), delayMs: whole(0, 300) });
    await this.send(name, toRequest({ user, session, prompt, key: id }), complete);
    return isTemporary !== true;
  }

  /** Something in the background that waits for its time, a signal or a person; then its end. */
  async #wait(kind: string, { user, session, id }: { user: string; session: string; id: string }): Promise<void> {
    const path = `/apps/${APP}/users/${user}/sessions/${session}`;
    const prompt = promptFor({ id, calls: kind === 'sleep' ? whole(3, 40) : 1, delayMs: 100 });
    const body = { newMessage: words(prompt), webhookUrl: this.#world.webhook };
    const text = await this.send('start', post(`${path}/invocations`, body, keyed(id)));
    if (text === undefined) return;
    const { id: invocationId } = JSON.parse(text) as { id: string };
    const invocation = { method: 'GET', path: `${path}/invocations/${invocationId}` };
    if (kind === 'signal') {
      await sleep(whole(0, 20_000));
      await this.send('signal', post(`${path}/signals/${id}`, {}, keyed(`${id}-signal`)));
    }
    if (kind === 'pay') {
      await this.send('paused', invocation, '"status":"paused"');
      await sleep(whole(0, 20_000));
      const list = await this.send('tasks', { method: 'GET', path: `/tasks?ownerId=${user}&limit=100` }, invocationId);
      const { items } = JSON.parse(list ?? '{"items":[]}') as { items: { id: string; invocationId: string }[] };
      const task = items.find((each) => each.invocationId === invocationId);
      const answer = {
        method: 'PATCH',
        path: `/tasks/${task?.id}`,
        body: { action: 'answer' },
        headers: keyed(`${id}-yes`),
      };
      await this.send('answer a task', answer);
    }
    const ended = await this.send('follow', invocation, '"status":"succeeded"');
    if (ended === undefined) return;
    // Of a session that is deleted nothing is sent any more.
    const until = performance.now() + WITHIN_MS;
    while (this.#world.deliveries(invocationId) < 1 && performance.now() < until) await sleep(PAUSE_MS);
    const counts = { deliveries: this.#world.deliveries(invocationId), payments: this.#world.payments(id) };
    if (counts.deliveries !== 1 || counts.payments !== (kind === 'pay' ? 1 : 0))
      this.#blame(`${id}: ${JSON.stringify(counts)}`);
  }

  /** Follows the session by one stream or the other until it is told to stop, or the replica goes. */
  #follow(path: string, user: string, session: string): AbortController {
    const stop = new AbortController();
    const stream = pick([
      `${path}/events/stream`,
      `/durable-streams/${APP}/sessions/${session}?user_id=${user}&live=sse&offset=-1`,
    ]);
    const read = async () => {
      const response = await fetch(`${pick(this.#world.urls())}${stream}`, {
        dispatcher: this.#agent,
        signal: stop.signal,
      });
      for await (const _ of response.body ?? []) void _;
    };
    void read().catch(() => undefined);
    return stop;
  }

  /** What else clients do with a session. */
  async #useRest(of: string, path: string, n: number): Promise<void> {
    const get = (what: string) => ({ method: 'GET', path: what });
    const event = { id: `e${n}`, invocationId: 'i', author: 'user', content: words(`said ${n}`), timestamp: 1.79e9 };
    const all: [string, Sent][] = [
      ['append', post(`${path}/events`, event, keyed(`e${n}`))],
      ['state', { method: 'PATCH', path, body: { stateDelta: { own: n, 'user:k': n, 'app:k': n % 10 } } }],
      ['save an artifact', post(`${path}/artifacts`, { filename: 'a.txt', artifact: { text: 'x'.repeat(2_000) } })],
      ['artifact', get(`${path}/artifacts/a.txt`)],
      ['label', { method: 'PATCH', path: `${path}/labels`, body: { project: `p${n % 5}` } }],
      ['remember', { method: 'PATCH', path: `${of}/memory`, body: { sessionId: path.split('/').at(-1) } }],
      ['memory', get(`${of}/memory?query=said`)],
      ['session', get(path)],
      ['sessions', get(`${of}/sessions?limit=20`)],
      ['events', get(`${path}/events?limit=10`)],
      ['invocations', get(`/apps/${APP}/invocations?limit=20`)],
      ['usage', get(`${of}/usage?by=day,model`)],
      ['storage', get(`${of}/storage`)],
    ];
    for (const [kind, sent] of all) if (Math.random() < 0.4 || kind === 'save an artifact') await this.send(kind, sent);
  }

  async #remove(path: string): Promise<void> {
    await this.send('delete', { method: 'DELETE', path });
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}
