import { readFileSync } from 'node:fs';

/** The flags that a service has of `bin/launch`. */
export const NODE_FLAGS =
  readFileSync(new URL('../../bin/launch', import.meta.url), 'utf8').match(/(?<= )--\S+=\d+/g) ?? [];
