import type { Operation } from '../operation/operation.ts';
import { camelCase, pathParameters, listRoutes } from '../operation/paths.ts';

/**
 * Compares what operations say of themselves and of each other, at every start. @throws Error for a taken
 * id or route, a template that differs from its parameters, a user in a path who is no owner, or a missing scope
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
