import { useState } from 'react';

/** Text that is being written, kept in this tab until it is sent: an error, a reload or a login does not lose it. */

const PLACE = 'console.draft ';

export function useDraft(name: string, start = ''): [text: string, write: (text: string) => void] {
  const [text, setText] = useState(() => readDraft(name) ?? start);
  const write = (next: string) => {
    setText(next);
    keepDraft(name, next);
  };
  return [text, write];
}

export const readDraft = (name: string) => sessionStorage.getItem(PLACE + name) ?? undefined;

export function keepDraft(name: string, text: string): void {
  try {
    if (text === '') sessionStorage.removeItem(PLACE + name);
    else sessionStorage.setItem(PLACE + name, text);
  } catch {
    // More than a tab may keep: it is in the page only.
  }
}

/** Who logs out leaves nothing behind. */
export function forgetDrafts(): void {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(PLACE)) sessionStorage.removeItem(name);
}
