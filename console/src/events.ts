import { useEffect, useRef, useState } from 'react';
import { type Event, follow, sessionPath, type SessionName } from './api.ts';

export interface Item {
  sequence: number;
  event: Event;
}

/** The events of a session as they come. */
export interface SessionEvents {
  items: Item[];
  /** Text of events to come, by author. */
  open: ReadonlyMap<string, string>;
  error: Error | undefined;
  /** Whether the connection is lost; it is tried again. */
  isLost: boolean;
}

type Part = NonNullable<NonNullable<Event['content']>['parts']>[number];
export const partsOf = ({ content }: Event): Part[] => content?.parts ?? [];

/** True for a message that a running invocation took: it begins no turn. Its id is that of the invocation of its request. */
export const isSteer = ({ author, customMetadata }: Event): boolean =>
  author === 'user' && customMetadata?.['agent-runtime/steer'] === true;

/** Whose result a message is that an agent in the background has sent; the session is that in which it worked. */
export const resultOf = ({ author, customMetadata }: Event) =>
  author === 'user'
    ? (customMetadata?.['agent-runtime/result'] as { agent: string; sessionId: string } | undefined)
    : undefined;

/** How often what came is shown, and while many come: each time costs a look at all events. */
const FLUSH_MS = 120;
const BUSY_FLUSH_MS = 700;
const BUSY_COUNT = 200;

/** Reads the events of a session and those to come, with text as it is spoken. */
export function useEvents(name: SessionName): SessionEvents {
  const path = `${sessionPath(name)}/events/stream?deltas=true`;
  const [state, setState] = useState<SessionEvents>({ items: [], open: new Map(), error: undefined, isLost: false });
  const timer = useRef(0);
  useEffect(() => {
    const leave = new AbortController();
    let items: Item[] = [];
    let open = new Map<string, string>();
    let shown = 0;
    let pauseMs = FLUSH_MS;
    const flush = () => {
      timer.current = 0;
      pauseMs = items.length - shown > BUSY_COUNT ? BUSY_FLUSH_MS : FLUSH_MS;
      shown = items.length;
      setState({ items: items.slice(), open: new Map(open), error: undefined, isLost: false });
    };
    const take = (id: string, type: string, data: string) => {
      if (type === 'restart') {
        items = [];
        open = new Map();
      } else {
        const event = JSON.parse(data) as Event;
        const author = event.author ?? '';
        const said = partsOf(event)
          .map(({ text = '' }) => text ?? '')
          .join('');
        if (event.partial === true) open.set(author, (open.get(author) ?? '') + said);
        else if (event.interrupted === true && !event.content && !event.errorCode) open.clear();
        else {
          open.delete(author);
          items.push({ sequence: Number.parseInt(id, 10), event });
        }
      }
      timer.current ||= window.setTimeout(flush, pauseMs);
    };
    setState({ items: [], open: new Map(), error: undefined, isLost: false });
    const note = (isLost: boolean) => setState((before) => (before.isLost === isLost ? before : { ...before, isLost }));
    follow(path, leave.signal, ({ id, type, data }) => take(id, type, data), note).catch((error: Error) =>
      setState({ items, open, error, isLost: false }),
    );
    return () => {
      leave.abort();
      clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [path]);
  return state;
}
