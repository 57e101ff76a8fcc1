import type { FairnessLimits } from '../core/settings-of-fairness.ts';
import { loadOf } from '../http/operation/operation.ts';
import type { RequestLimits } from '../http/operation/request-limits.ts';
import { createSlots, type Slots } from './slots.ts';

/** Limits of each caller, counted in this process. */
export function createRequestLimits(limits: FairnessLimits): RequestLimits {
  const requests = createSlots('MAX_REQUESTS_PER_USER', limits.MAX_REQUESTS_PER_USER, 'requests under way');
  const streams = createSlots('MAX_STREAMS_PER_USER', limits.MAX_STREAMS_PER_USER, 'streams open');
  const heavy = createSlots('MAX_HEAVY_READS_PER_USER', limits.MAX_HEAVY_READS_PER_USER, 'large reads under way');
  return {
    async admit(caller, operation, request, response) {
      const wanted = [
        requests,
        ...(operation.isStream ? [streams] : []),
        ...(loadOf(operation) === 'heavy' ? [heavy] : []),
      ];
      // Who has gone already gives nothing back.
      if (response.destroyed || request.socket.destroyed) return;
      const release = takeAll(wanted, caller);
      // The answer to an upgrade is the socket itself.
      const answer = request.headers.upgrade === undefined ? response : request.socket;
      answer.once('close', release);
    },
  };
}

/** All or none of them. */
function takeAll(wanted: Slots[], caller: string): () => void {
  const taken: (() => void)[] = [];
  const release = () => {
    for (const give of taken.splice(0)) give();
  };
  try {
    for (const slots of wanted) taken.push(slots.take(caller));
    return release;
  } catch (error) {
    release();
    throw error;
  }
}
