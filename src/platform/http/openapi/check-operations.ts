import type { Operation } from '../operation/operation.ts';
import { camelCase, pathParameters, listRoutes } from '../operation/paths.ts';

/**
 * Compares what operations say of themselves and of each other. Cheap, so every start does it.
 * @throws Error that names the operation: an id or a route is taken, a template and its parameters differ, a path
 * names a user that is not its owner, it says no scope
 */
export function checkOperations(operations: Operation[]): void {
  const taken = new Set<string>();
  const take = (what: string, by: string) => {
    if (taken.has(what)) throw new Error(`${by}: ${what} is taken.`);
    taken.add(what);
  };
  for (const { operationId } of operations) take(operationId, operationId);
  for (const { path, operation } of listRoutes(operations)) {
    const { method, operationId, owner, parameters, scope } = operation;
    if ((scope === 'none') !== (owner === 'open') || scope === undefined) {
      throw new Error(`${operationId}: it names no scope, which only open operations may leave out.`);
    }
    take(`${method} ${path}`, operationId);
    const named = pathParameters(path);
    const declared = Object.keys(parameters?.path?.shape ?? {});
    if (named.map(camelCase).toSorted().join() !== declared.toSorted().join()) {
      throw new Error(`${operationId}: ${path} and its parameters (${declared.join(', ')}) differ.`);
    }
    if (named.includes('user_id') !== (owner === 'path')) {
      throw new Error(`${operationId}: the owner of ${path} is the user in the path, and of no other path.`);
    }
  }
}
