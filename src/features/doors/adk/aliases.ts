import type { Aliases } from '../../../platform/http/operation/paths.ts';

/**
 * Paths that clients use beside those of the document, each with the ids of the operations that are served there too:
 * same rights, limits, answers and names in metrics and audit. The document leaves them out.
 */
export const ALIASES: Aliases = {
  // The AgentKit command line asks this first.
  '/ping': ['health'],

  // ADK's older spellings of evaluation: underscores, and in ADK 1.x no `/dev` in front.
  '/dev/apps/{app_name}/eval_sets/{eval_set_id}': ['getEvalSet', 'deleteEvalSet'],
  '/dev/apps/{app_name}/eval_sets/{eval_set_id}/evals/{eval_id}': ['getEvalCase', 'updateEvalCase', 'deleteEvalCase'],
  '/dev/apps/{app_name}/eval_results/{eval_result_id}': ['getEvalResult'],
  '/apps/{app_name}/eval_sets': ['listEvalSetIds'],
  '/apps/{app_name}/eval_sets/{eval_set_id}': ['createEvalSetWithId', 'getEvalSet', 'deleteEvalSet'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/add_session': ['overwriteEvalCase'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/run_eval': ['runEvalSetAsList'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/evals': ['listEvalCases'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/evals/{eval_id}': ['getEvalCase', 'updateEvalCase', 'deleteEvalCase'],
  '/apps/{app_name}/eval_results': ['listEvalResultIds'],
  '/apps/{app_name}/eval_results/{eval_result_id}': ['getEvalResult'],

  // A2A 0.3 has its version in the path.
  '/a2a/{app_name}/v1/message:send': ['sendA2aMessage'],
  '/a2a/{app_name}/v1/message:stream': ['streamA2aMessage'],
  '/a2a/{app_name}/v1/tasks': ['listA2aTasks'],
  '/a2a/{app_name}/v1/tasks/{task_id}': ['getA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}:cancel': ['cancelA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}:subscribe': ['subscribeToA2aTask', 'resubscribeToA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}/pushNotificationConfigs': ['createA2aPushConfig', 'listA2aPushConfigs'],
  '/a2a/{app_name}/v1/tasks/{task_id}/pushNotificationConfigs/{config_id}': ['getA2aPushConfig', 'deleteA2aPushConfig'],
  '/a2a/{app_name}/v1/card': ['getExtendedA2aCard'],

  // Clients of MCP that do not know where a resource's own metadata are.
  '/.well-known/oauth-protected-resource': ['getMcpMetadata'],
};
