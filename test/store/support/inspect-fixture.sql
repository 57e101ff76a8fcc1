-- One row or more of each kind; texts that people, models and tools chose hold the word SECRET.
insert into sessions (app_name, user_id, id, state, last_sequence, event_bytes, lease_token, create_time, update_time)
values ('a', 'u', 's1', '{"k": "SECRET state"}', 6, 600, '00000000-0000-4000-8000-000000000001', '2026-01-01 00:00Z', '2026-01-01 00:09Z'),
       ('a', 'u', 's2', '{}', 0, 0, null, '2026-01-02 00:00Z', '2026-01-02 00:00Z'),
       ('a', 'u', 'e1', '{}', 0, 0, null, '2026-01-03 00:00Z', '2026-01-03 00:00Z');
update sessions set is_eval = true where id = 'e1';
insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, is_from_runtime, payload, bytes)
select g.*, octet_length(g.payload::text) from (
values ('a', 'u', 's1', 1, 'e1', 'i1', 'user', timestamptz '2026-01-01 00:01:00Z', true, jsonb '{"content": {"parts": [{"text": "SECRET hi"}]}}'),
       ('a', 'u', 's1', 2, 'e2', 'i1', 'agent', '2026-01-01 00:01:01Z', true,
        '{"content": {"parts": [{"functionCall": {"id": "c1", "name": "add", "args": {"a": "SECRET"}}}]}, "modelVersion": "large-2", "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 5}}'),
       ('a', 'u', 's1', 3, 'e3', 'i1', 'agent', '2026-01-01 00:01:03.5Z', true,
        '{"content": {"parts": [{"functionResponse": {"id": "c1", "name": "add", "response": {"r": "SECRET"}}}]}}'),
       ('a', 'u', 's1', 4, 'e4', 'i1', 'agent', '2026-01-01 00:01:04Z', true,
        '{"content": {"parts": [{"text": "SECRET bye"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}, "modelVersion": "large-2", "usageMetadata": {"promptTokenCount": 200, "candidatesTokenCount": 20}}'),
       ('a', 'u', 's1', 5, 'e5', 'i2', 'agent', '2026-01-01 00:02:00Z', true,
        '{"content": {"parts": [{"functionCall": {"id": "c2", "name": "ask"}}, {"functionCall": {"id": "c3", "name": "fetch"}}]}, "modelVersion": "other", "usageMetadata": {"promptTokenCount": 7}}'),
       ('a', 'u', 's1', 6, 'e6', 'i2', 'agent', '2026-01-01 00:02:02Z', true,
        '{"content": {"parts": [{"functionResponse": {"id": "c3", "name": "fetch", "response": {"error": "SECRET"}}}]}, "errorMessage": "SECRET error"}')
) g (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, is_from_runtime, payload);
insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, error_code, error_message,
                         llm_calls, tool_calls, prompt_tokens, output_tokens, create_time, start_time, end_time)
values ('a', 'u', 's1', 'i1', 'succeeded', gen_random_uuid(), '2026-01-01Z', null, null, 2, 1, 300, 35,
        '2026-01-01 00:00:59Z', '2026-01-01 00:01Z', '2026-01-01 00:01:05Z'),
       ('a', 'u', 's1', 'i2', 'failed', gen_random_uuid(), '2026-01-01Z', 'model_error', 'SECRET reason', 1, 2, 7, 0,
        '2026-01-01 00:01:59Z', '2026-01-01 00:02Z', '2026-01-01 00:02:02Z'),
       ('a', 'u', 's1', 'i3', 'running', '00000000-0000-4000-8000-000000000001', '2999-01-01Z', null, null, 0, 0, 0, 0,
        '2026-01-01 00:03Z', '2026-01-01 00:03Z', null),
       ('a', 'u', 's1', 'i4', 'queued', gen_random_uuid(), '2999-01-01Z', null, null, 0, 0, 0, 0, '2026-01-01 00:04Z', null, null),
       ('a', 'u', 's1', 'i5', 'queued', gen_random_uuid(), '2026-01-01Z', null, null, 0, 0, 0, 0, '2026-01-01 00:05Z', null, null);
update invocations set agent_version = 'v1', agent = 'helper', first_text = 'SECRET question', work_ms = 4000 where id = 'i1';
insert into artifacts values ('a', 'u', 's1', 'SECRET.txt', 2), ('a', 'u', '', 'user:SECRET', 1);
insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, mime_type, part, content,
                               object_key, size_bytes, sha256, create_time)
values ('a', 'u', 's1', 'SECRET.txt', 0, 'x', 'text/plain', '{}', 'abc', null, 3, '', '2026-01-01 01:00Z'),
       ('a', 'u', 's1', 'SECRET.txt', 1, 'x', 'image/png', '{}', null, 'key', 40, '', '2026-01-01 02:00Z'),
       ('a', 'u', '', 'user:SECRET', 0, 'x', null, '{}', 'abcde', null, 5, '', '2026-01-01 03:00Z');
insert into model_prices values ('large', 1000, 4000), ('large-2-mini', 1, 1);
insert into budget_uses values ('a', 'u', '2026-01-01', 0, 2, 100, 10, 0.5), ('a', 'u', '2026-01-01', 1, 1, 7, 1, 0.25);
insert into budgets values ('a', '', 'app', 'month', null, null, 2.5, 'w1', '2026-01-01Z'), ('a', 'u', 'user', 'day', 9, null, null, null, '2026-01-01Z');
insert into budget_alerts values ('a', '', 'app', 'month', '2026-01-01', 50);
insert into budget_reservations values ('a', 'u', '00000000-0000-4000-8000-00000000000e', 500, 0.5, '2026-01-01Z');
insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap, max_attempts,
                      retry_pause_seconds, max_retry_pause_seconds, max_failures, next_run_time, failure_count, revision)
values ('a', 'u', 'j1', 'SECRET name', 'SECRET prompt', '{"type": "daily"}', true, 'new', 'once', 'skip', 1, 1, 1, 0,
        '2026-01-03 08:00Z', 1, 3);
update invocations set cronjob_id = 'j1', run_id = 'r1', due_time = '2026-01-01 00:00:58Z', is_manual = false, try = 1,
                       response_body = 'SECRET output', first_end_time = end_time where id = 'i1';
update invocations set cronjob_id = 'j1', run_id = 'r2', due_time = '2026-01-02 08:00Z', is_manual = true, try = 2,
                       first_end_time = end_time where id = 'i2';
insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
values ('a', 'u', 'w1', 'https://hook.example/SECRET', 'hook.example', false, 'whsec');
insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, answers, create_time, end_time)
values ('a', 'u', 'd1', 'w1', 'hook.example', '{"type": "run.ended", "data": {"status": "success", "output": "SECRET"}}', 'pending',
        '2026-01-02Z', '[{"status": 500, "error": "SECRET answer"}]', '2026-01-01 08:00Z', null);
update jobs set attempt = 1, due_time = '2026-01-01 09:00Z';
insert into audit_log (time, caller_kind, caller, address, operation, resource, decision, reason, request_id, left_out)
overriding system value
values ('2026-01-01 10:00Z', 'key', 'k1', '127.0.0.1', 'getArtifact',
        '{"appName": "a", "userId": "u", "sessionId": "s1", "artifactName": "SECRET.txt"}', 'refused', 'scope', 'q1', 2);
insert into eval_sets (app_name, id) values ('a', 'smoke');
with cases as (
  insert into eval_cases (app_name, eval_set_id, id, version) values ('a', 'smoke', 'c1', 1), ('a', 'smoke', 'c2', 2))
insert into eval_case_versions (app_name, eval_set_id, eval_id, version, hash, payload)
values ('a', 'smoke', 'c1', 1, '', '{}'), ('a', 'smoke', 'c2', 2, '', '{}');
insert into eval_runs (app_name, id, eval_set_id, requested_by, status, metrics, trials, parallelism, agent_hash, model_name, result_time,
                       create_time, end_time)
values ('a', '00000000-0000-4000-8000-00000000000a', 'smoke', 'u', 'done', '[]', 1, 4, 'hash', 'large', '2026-01-01Z', '2026-01-01 00:00Z',
        '2026-01-01 00:00:30Z');
insert into eval_run_cases (app_name, run_id, place, trial, eval_set_id, eval_id, case_version, status, session_user_id, session_id,
                            error, result, start_time, end_time)
values ('a', '00000000-0000-4000-8000-00000000000a', 0, 1, 'smoke', 'c1', 1, 'done', 'u', 'e1', null,
        '{"finalStatus": "PASSED", "efficiency": {"tokenUsage": {"totalTokens": 12.5}}, "overall": [{"metricName": "m", "score": 0.75, "status": "PASSED", "judge": {"model": "judge-1", "promptVersion": "p1"}}], "turns": [[{"metricName": "m", "status": "PASSED"}]]}',
        '2026-01-01 00:00:10Z', '2026-01-01 00:00:12Z'),
       ('a', '00000000-0000-4000-8000-00000000000a', 1, 1, 'smoke', 'c2', 2, 'error', 'u', null, 'SECRET problem', null,
        '2026-01-01 00:00:12Z', '2026-01-01 00:00:13Z');
insert into eval_verdicts (app_name, user_id, session_id, turn, metric_name, author, passed) values ('a', 'u', 'e1', 0, 'm', 'person', false);
insert into eval_session_scores (app_name, user_id, session_id, last_sequence, metrics_hash, rule_id, result, create_time)
values ('a', 'u', 'e1', 2, 'h', 'safe', '{"finalStatus": "FAILED", "overall": [{"metricName": "m", "score": 0.25, "status": "FAILED", "judge": {"model": "judge-1"}}, {"metricName": "n", "score": null, "status": "NOT_EVALUATED", "explanation": "SECRET reason"}]}',
        '2026-01-01 07:00Z');
insert into session_verdicts (app_name, user_id, session_id, event_id, author, passed, label, comment, create_time)
values ('a', 'u', 'e1', '', 'u', true, 'good', 'SECRET words', '2026-01-01 07:10Z');
insert into tool_calls (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state, attempt, response)
values ('a', 'u', 's1', 'i1', 'c1', '00000000-0000-8000-8000-00000000000c', 'add', 'none', 'done', 1, null),
       ('a', 'u', 's1', 'i2', 'c3', '00000000-0000-8000-8000-00000000000d', 'fetch', 'once', 'unknown', 2, '{"response": "SECRET"}');
insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, llm_calls, tool_calls,
                         prompt_tokens, output_tokens, create_time, start_time)
values ('a', 'u', 's2', 'i6', 'paused', gen_random_uuid(), '2026-01-01Z', 1, 1, 3, 2, '2026-01-02 00:06Z', '2026-01-02 00:06Z');
insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, assigned_groups, expire_time,
                   create_time)
values ('a', 'u', 's2', 't1', 'i6', 'c1', 'adk_request_confirmation', 'confirmation',
        '{"tool": "pay", "args": {"to": "SECRET"}, "hint": "SECRET?"}', '{finance}', '2026-01-05Z', '2026-01-02 00:07Z');
-- i7 waits in the background for longer than a lease lasts, and i8, a run of a cronjob, for its time; i9 lost its task.
insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, create_time,
                         not_before, waits_for_tasks)
values ('a', 'u', 's1', 'i7', 'queued', gen_random_uuid(), '2026-01-01Z', '{}', '2026-01-01 00:06Z', null, null),
       ('a', 'u', 's2', 'i8', 'queued', gen_random_uuid(), '2026-01-01Z', '{}', '2026-01-01 00:06Z', '2999-01-01Z', null),
       ('a', 'u', 's2', 'i9', 'paused', gen_random_uuid(), '2026-01-01Z', '{}', '2026-01-02 00:08Z', null, true);
insert into signals (app_name, user_id, session_id, id, name, payload, create_time)
values ('a', 'u', 's2', 'g1', 'SECRET paid', '{"text": "SECRET"}', '2026-01-02 00:09Z');
insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector)
values ('a', 'u', 's1', 'e1', 'user', '{"parts": [{"text": "SECRET hi"}]}', '2026-01-01 00:01Z', '');
insert into score_rules (app_name, id, share, definition, update_time)
values ('a', 'safe', 0.1, '{"webhookId": "SECRET"}', '2026-01-01Z');
