import { createInterface } from 'node:readline';

/** The lines that are typed or piped in, one after another. */
export interface Lines {
  /** Shows the prompt and gives the next line; `undefined` when there is none any more. */
  next(prompt: string): Promise<string | undefined>;
  /** Sets the effect of Ctrl-C until `restore` is called [ends the input]. */
  onInterrupt(call: () => void): () => void;
  close(): void;
}

/** Reads the input of the process. Lines that come while nobody asks are kept: a pipe brings them all at once. */
export function readLines(): Lines {
  const terminal = process.stdin.isTTY;
  const input = createInterface({ input: process.stdin, output: process.stdout, terminal });
  const waiting: string[] = [];
  let give: ((line: string | undefined) => void) | undefined;
  let isOver = false;
  let interrupt = () => input.close();
  input.on('SIGINT', () => interrupt());
  input.on('line', (line) => {
    if (!give) waiting.push(line);
    give?.(line);
    give = undefined;
  });
  input.on('close', () => {
    isOver = true;
    give?.(undefined);
  });
  return {
    next: async (prompt) => {
      if (waiting.length > 0 || isOver) return waiting.shift();
      if (terminal) input.setPrompt(prompt);
      if (terminal) input.prompt();
      return new Promise((resolve) => (give = resolve));
    },
    onInterrupt: (call) => {
      const before = interrupt;
      interrupt = call;
      return () => (interrupt = before);
    },
    close: () => input.close(),
  };
}
