import type { Feature } from '../../platform/feature/feature.ts';
import { removeLeftResults } from '../../conversation/artifacts/artifacts.ts';
import { continueErasures } from './erase-user.ts';
import { applyRetention, RETENTION_SETTINGS, type RetentionContext, toRetention } from './retention.ts';
import { type UserContext, userOperations } from './routes.ts';

/** Export, import and erasure of all that features store of a user, and retention. */
export const userFeature = {
  name: 'users',
  settings: { Retention: RETENTION_SETTINGS },
  operations: userOperations,
  sweeps: [
    { group: 'erasures', name: 'going on with erasures', run: continueErasures },
    {
      group: 'retention',
      name: 'deleting what is not kept of users',
      run: (context) => applyRetention(context, toRetention(context.config), context.signal),
    },
    { group: 'retention', name: 'removing objects of deleted sessions', run: removeLeftResults },
  ],
} satisfies Feature<UserContext & RetentionContext>;
