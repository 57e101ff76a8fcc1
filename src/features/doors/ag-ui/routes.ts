import type { InvocationContext } from '../../../invocations/context.ts';
import type { Operation } from '../../../platform/http/operation/operation.ts';

/** The operations of this door. */
export const agUiOperations: Operation<InvocationContext>[] = [];
