import { useState } from 'react';

/** Text that is being written, kept in this tab until it is sent: an error, a reload or a login does not lose it. */

const PLACE = 'console.draft ';

export function useDraft(name: string, start = ''): [text: string, write: (text: string) => boolean] {
  const [text, setText] = useState(() => readDraft(name) ?? start);
  const write = (next: string) => {
    setText(next);
    return keepDraft(name, next);
  };
  return [text, write];
}

export const readDraft = (name: string) => sessionStorage.getItem(PLACE + name) ?? undefined;

/** @returns false for more than a tab may keep: it is in the page only, and what was kept before is gone */
export function keepDraft(name: string, text: string): boolean {
  sessionStorage.removeItem(PLACE + name);
  if (text === '') return true;
  try {
    sessionStorage.setItem(PLACE + name, text);
    return true;
  } catch {
    return false;
  }
}

/** Who logs out leaves nothing behind. */
export function forgetDrafts(): void {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(PLACE)) sessionStorage.removeItem(name);
}
