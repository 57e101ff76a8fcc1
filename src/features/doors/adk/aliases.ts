import type { Aliases } from '../../../platform/http/operation/paths.ts';

/**
 * Paths that are served but not in openapi.json, with the ids of their operations, which also give authorization, rate
 * limits, responses, and the name in metrics and audit log.
 */
export const ALIASES: Aliases = {
  // The AgentKit command line requests this path first.
  '/ping': ['health'],

  // Older paths of ADK's evaluation API: with underscores, and in ADK 1.x without the prefix `/dev`.
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

  // Paths of A2A 0.3 contain the version.
  '/a2a/{app_name}/v1/message:send': ['sendA2aMessage'],
  '/a2a/{app_name}/v1/message:stream': ['streamA2aMessage'],
  '/a2a/{app_name}/v1/tasks': ['listA2aTasks'],
  '/a2a/{app_name}/v1/tasks/{task_id}': ['getA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}:cancel': ['cancelA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}:subscribe': ['subscribeToA2aTask', 'resubscribeToA2aTask'],
  '/a2a/{app_name}/v1/tasks/{task_id}/pushNotificationConfigs': ['createA2aPushConfig', 'listA2aPushConfigs'],
  '/a2a/{app_name}/v1/tasks/{task_id}/pushNotificationConfigs/{config_id}': ['getA2aPushConfig', 'deleteA2aPushConfig'],
  '/a2a/{app_name}/v1/card': ['getExtendedA2aCard'],

  // For MCP clients that request the metadata of protected resources (RFC 9728) without the path of the resource.
  '/.well-known/oauth-protected-resource': ['getMcpMetadata'],
};
