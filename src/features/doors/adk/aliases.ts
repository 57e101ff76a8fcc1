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

  // For MCP clients that request the metadata of protected resources (RFC 9728) without the path of the resource.
  '/.well-known/oauth-protected-resource': ['getMcpMetadata'],
};
