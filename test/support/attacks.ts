/** What a hostile user does again and again, `times` at once. */
export interface Attack {
  times: number;
  method?: string;
  path: string;
  body?: object | string;
  /** Instead of the user's own. */
  headers?: Record<string, string>;
}

interface World {
  url: string;
  user: string;
  /** Address of the user's sessions, of which one is called `large`. */
  sessions: string;
}

/** What an attacking process is to do, and as whom. */
export interface Order {
  url: string;
  user: string;
  headers: Record<string, string>;
  kinds: AttackKind[];
}

/** The name of a kind of attack. */
export type AttackKind = keyof typeof ATTACKS;

const MANY_KEYS = `{"stateDelta":{${Array.from({ length: 600_000 }, (_, index) => `"k${index}":1`).join()}}}`;

/** Attacks of one user, by kind: everything that the limits of a user let it do. */
export const ATTACKS = {
  'small reads': ({ sessions }: World) => [{ times: 60, path: `${sessions}/large/events?limit=5` }],
  'large reads': ({ sessions }: World) => [
    { times: 16, path: `${sessions}/large` },
    { times: 8, path: sessions },
  ],
  'runs on a large session': ({ url, user }: World) => [
    { times: 60, method: 'POST', path: `${url}/run`, body: run(user, 'large') },
  ],
  runs: ({ url, user }: World) =>
    Array.from({ length: 60 }, (_, index) => ({
      times: 1,
      method: 'POST',
      path: `${url}/run`,
      body: run(user, `s${index}`),
    })),
  writes: ({ sessions }: World) => [{ times: 60, method: 'POST', path: sessions, body: {} }],
  'large bodies': ({ sessions }: World) => [
    { times: 4, method: 'PATCH', path: `${sessions}/large`, body: MANY_KEYS },
    { times: 4, method: 'POST', path: `${sessions}/large/events`, body: largeEvent() },
  ],
  streams: ({ sessions }: World) => [{ times: 2_000, path: `${sessions}/large/events/stream?afterSequence=30` }],
  'wrong credentials': ({ url }: World) => [
    { times: 60, path: `${url}/list-apps`, headers: { authorization: 'Bearer wrong' } },
  ],
} satisfies Record<string, (world: World) => Attack[]>;

const run = (userId: string, sessionId: string) => ({
  appName: 'harness_agent',
  userId,
  sessionId,
  newMessage: { role: 'user', parts: [{ text: 'go' }] },
});

/** An event of nearly a megabyte. */
export const largeEvent = () => ({
  author: 'user',
  content: { role: 'user', parts: [{ text: 'x'.repeat(900_000) }] },
});
