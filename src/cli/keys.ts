import { createKey } from '../platform/http/access/key-ring.ts';
import { type Scope, USER_SCOPES } from '../platform/http/operation/principal.ts';

/** Options of `keys create`. `scopes`, `users` and `apps` are comma-separated lists. */
type KeyOptions = Partial<Record<'scopes' | 'users' | 'apps' | 'expires' | 'id', string>> & { json?: boolean };

/** A new runtime key is stored nowhere; its printed line is for `RUNTIME_API_KEYS_FILE`. @throws {ConfigError} */
export function createKeys({ scopes, users, apps, expires, id, json }: KeyOptions): void {
  const { key, entry } = createKey({
    id,
    scopes: (scopes?.split(',') ?? [...USER_SCOPES]) as Scope[],
    users: users?.split(','),
    apps: apps?.split(','),
    expires,
  });
  if (json) return console.log(JSON.stringify({ key, entry: JSON.parse(entry) as unknown }));
  console.log(`The key, shown once, for its holder:\n${key}\nIts line for RUNTIME_API_KEYS_FILE:\n${entry}`);
}
