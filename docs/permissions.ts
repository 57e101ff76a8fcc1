import { ForbiddenError, NotFoundError } from '../src/core/errors.ts';
import { createAuthorize } from '../src/platform/http/access/authorize.ts';
import { AREAS, type Operation } from '../src/platform/http/operation/operation.ts';
import { ANONYMOUS, FULL_KEY, type Principal } from '../src/platform/http/operation/principal.ts';
import { listAllOperations } from '../src/process/app.ts';

/*
 * The tables of `docs/permissions.md`: each operation of the document, asked by each kind of caller. What a cell says is
 * what `authorize.ts` decides.
 */

const OWN = { userId: 'ann', appName: 'shop' };
const OTHER = { userId: 'bob', appName: 'bank' };

/** The callers of the columns. Each has all scopes, because the scope has a column of its own. */
const CALLERS: Record<string, Principal> = {
  local: ANONYMOUS,
  key: FULL_KEY,
  'key of users': { ...FULL_KEY, kind: 'key', id: 'bound', users: new Set([OWN.userId]) },
  'key of apps': { ...FULL_KEY, kind: 'key', id: 'bound', apps: new Set([OWN.appName]) },
  token: { kind: 'user', userId: OWN.userId, scopes: FULL_KEY.scopes },
};

const HEADER = ['operation', 'scope', ...Object.keys(CALLERS)];
const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;

/** One table for each area of the interface. */
export function permissionTables(): string {
  const operations = (listAllOperations() as Operation[]).filter(({ isCopy }) => !isCopy);
  return Object.keys(AREAS)
    .flatMap((area) => {
      const own = operations.filter((each) => each.area === area);
      const rows = own.map((each) =>
        row([nameOf(each), scopeOf(each), ...Object.keys(CALLERS).map((caller) => permissionOf(each, caller))]),
      );
      return own.length === 0
        ? []
        : [`## ${area}\n\n${[row(HEADER), row(HEADER.map(() => '---')), ...rows].join('\n')}`];
    })
    .join('\n\n');
}

const nameOf = ({ method, path, operationId }: Operation) => `\`${method.toUpperCase()} ${path}\` ${operationId}`;
const scopeOf = ({ scope, demands }: Operation) => (scope === 'none' ? '–' : `\`${scope}\`${demands ? ' +' : ''}`);

/** What an operation says to a caller. @param caller the name of a column */
export function permissionOf(operation: Operation, caller: string): string {
  const { owner, path, servesBoundKeys } = operation;
  const principal = CALLERS[caller] ?? ANONYMOUS;
  if (owner === 'open') return 'open';
  const namesUser = owner === 'path' || typeof owner === 'object';
  const namesApp = path.includes('{app_name}') || (typeof owner === 'object' && owner.app !== undefined);
  const authorize = createAuthorize(operation);
  const absent = () => new NotFoundError('absent');
  const ask = ({ userId, appName }: typeof OWN) => {
    try {
      authorize(principal, { absent, ...(namesUser && { userId }), ...(namesApp && { appName }) });
      return 'yes';
    } catch (error) {
      if (error instanceof ForbiddenError) return 'no';
      if (error instanceof NotFoundError) return 'absent';
      throw error;
    }
  };
  const own = ask(OWN);
  const isBound = principal !== ANONYMOUS && principal !== FULL_KEY;
  const isKeptTo = isBound && (owner === 'caller' || servesBoundKeys === true);
  const isSome = own === 'yes' && (isKeptTo || ask(OTHER) !== 'yes');
  return isSome ? 'own' : own;
}
