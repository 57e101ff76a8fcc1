import type { Config } from '../../../config/config.ts';
import type { SessionContext } from '../../../conversation/sessions/session-context.ts';
import type { Feature } from '../../../platform/feature/feature.ts';
import { appOperations } from './app-routes.ts';
import { debugOperations } from './debug-routes.ts';
import { structureNodeSchema } from './graph.ts';
import { legacyOperations } from './legacy-routes.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { runOperations } from './run-routes.ts';
import { devUiPages } from './web-ui.ts';

export interface Context extends InvocationContext, Pick<SessionContext, 'forgetSessions' | 'copyArtifacts'> {
  config: Pick<Config, 'DEV_UI' | 'PUBLIC_URL'>;
}

/** What exists only for ADK's clients and the ADK Web UI. DOORS does not name it, because it is always served. */
export const adkFeature = {
  name: 'adk',
  operations: [...appOperations, ...runOperations, ...legacyOperations],
  devOperations: debugOperations,
  schemas: { StructureNode: structureNodeSchema },
  devPages: ({ config }) => devUiPages(config.PUBLIC_URL),
} satisfies Feature<Context>;
