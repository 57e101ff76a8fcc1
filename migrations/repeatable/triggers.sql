-- Triggers enforce invariants for every statement; ARCHITECTURE.md lists them. A section per table, because replacing a
-- trigger waits for the writers of its table: the migrator applies each section in a transaction of its own.
create or replace trigger artifact_versions_storage_insert_new after insert on artifact_versions referencing new table as changed
for each statement execute function count_stored_bytes('artifact_versions', '+');
create or replace trigger artifact_versions_storage_update_new after update on artifact_versions referencing new table as changed
for each statement execute function count_stored_bytes('artifact_versions', '+');
create or replace trigger artifact_versions_storage_update_old after update on artifact_versions referencing old table as changed
for each statement execute function count_stored_bytes('artifact_versions', '-');
create or replace trigger artifact_versions_storage_delete_old after delete on artifact_versions referencing old table as changed
for each statement execute function count_stored_bytes('artifact_versions', '-');
create or replace trigger artifact_versions_erasure before insert on artifact_versions for each row execute function refuse_while_erased();
create or replace trigger artifact_versions_hold before delete on artifact_versions for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger artifacts_erasure before insert on artifacts for each row execute function refuse_while_erased();
create or replace trigger artifacts_hold before delete on artifacts for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger audit_log_append_only before update or delete or truncate on audit_log
for each statement execute function refuse_audit_change();
--> statement-breakpoint
create or replace trigger budgets_totals after insert on budgets for each row
when (new.applies_to = 'app') execute function sum_up_use_of_app();
--> statement-breakpoint
create or replace trigger cronjobs_erasure before insert on cronjobs for each row execute function refuse_while_erased();
create or replace trigger cronjobs_hold before delete on cronjobs for each row execute function refuse_on_hold('');
--> statement-breakpoint
create or replace trigger eval_run_cases_insert after insert on eval_run_cases referencing new table as added
for each statement execute function start_eval_cases();
create or replace trigger eval_run_cases_end after update of status on eval_run_cases for each row
when (old.status in ('waiting', 'running') and new.status not in ('waiting', 'running')) execute function end_eval_case();
create or replace trigger eval_run_cases_delete after delete on eval_run_cases for each row
when (old.status in ('waiting', 'running')) execute function end_eval_case();
--> statement-breakpoint
create or replace trigger eval_session_scores_hold before delete on eval_session_scores for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger eval_verdicts_hold before delete on eval_verdicts for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger events_size before update of payload on events for each row execute function count_event_bytes();
create or replace trigger events_changed after update or delete on events for each row
when (pg_trigger_depth() = 0) execute function count_changed_events();
create or replace trigger events_hold before delete on events for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
-- Without WHEN, here and in the triggers of an invocation's end: PostgreSQL plans each WHEN anew in each statement, which
-- takes longer than a call of a function that does nothing.
create or replace trigger invocations_storage after insert or delete or update of request, status, not_before on invocations
for each row execute function count_request_bytes();
create or replace trigger invocations_key after delete on invocations for each row
when (old.idempotency_key is not null) execute function keep_invocation_key();
create or replace trigger invocations_erasure before insert on invocations for each row execute function refuse_while_erased();
-- A queued invocation has no content yet.
create or replace trigger invocations_hold before delete on invocations for each row when (old.status <> 'queued')
execute function refuse_on_hold('session_id');
-- Before the row is written, because the times of the count and of the run's end are stored in it.
create or replace trigger invocations_end before update of status on invocations for each row execute function stamp_end();
create or replace trigger invocations_follow after update of status on invocations for each row execute function follow_invocation();
create or replace trigger invocations_follow_delete after delete on invocations for each row
execute function follow_deleted_invocation();
--> statement-breakpoint
create or replace trigger legal_holds_root before insert on legal_holds for each row execute function hold_root();
--> statement-breakpoint
create or replace trigger memories_storage_insert_new after insert on memories referencing new table as changed
for each statement execute function count_stored_bytes('memories', '+');
create or replace trigger memories_storage_update_new after update on memories referencing new table as changed
for each statement execute function count_stored_bytes('memories', '+');
create or replace trigger memories_storage_update_old after update on memories referencing old table as changed
for each statement execute function count_stored_bytes('memories', '-');
create or replace trigger memories_storage_delete_old after delete on memories referencing old table as changed
for each statement execute function count_stored_bytes('memories', '-');
create or replace trigger memories_erasure before insert on memories for each row execute function refuse_while_erased();
create or replace trigger memories_hold before delete on memories for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger session_verdicts_hold before delete on session_verdicts for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger sessions_storage after insert or delete or update of event_bytes, state, initial_state on sessions
for each row execute function count_session_bytes();
create or replace trigger sessions_erasure before insert on sessions for each row execute function refuse_while_erased();
create or replace trigger sessions_results after delete on sessions for each row execute function delete_results();
create or replace trigger sessions_spans after delete on sessions for each row execute function delete_spans();
create or replace trigger sessions_hold before delete on sessions for each row execute function refuse_on_hold('id');
--> statement-breakpoint
create or replace trigger signals_hold before delete on signals for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger skipped_runs_hold before delete on skipped_runs for each row execute function refuse_on_hold('');
create or replace trigger skipped_runs_webhook after insert on skipped_runs for each row execute function insert_delivery_of_skipped_run();
--> statement-breakpoint
create or replace trigger spans_hold before delete on spans for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger tasks_hold before delete on tasks for each row execute function refuse_on_hold('session_id');
create or replace trigger tasks_webhook_insert after insert on tasks for each row execute function insert_delivery_of_task();
create or replace trigger tasks_webhook_update after update on tasks for each row
when (new.reminders > old.reminders or old.state = 'open' and new.state in ('answered', 'done')
      or new.state = 'open' and old.rules ? 'escalateTo' and not new.rules ? 'escalateTo')
execute function insert_delivery_of_task();
--> statement-breakpoint
create or replace trigger tool_calls_storage_insert after insert on tool_calls for each row
when (new.response is not null) execute function count_kept_bytes();
create or replace trigger tool_calls_storage_update after update of response on tool_calls for each row
when (new.response is distinct from old.response) execute function count_kept_bytes();
create or replace trigger tool_calls_storage_delete after delete on tool_calls for each row
when (old.response is not null) execute function count_kept_bytes();
create or replace trigger tool_calls_hold before delete on tool_calls for each row execute function refuse_on_hold('session_id');
--> statement-breakpoint
create or replace trigger user_credentials_erasure before insert on user_credentials for each row execute function refuse_while_erased();
create or replace trigger user_credentials_hold before delete on user_credentials for each row execute function refuse_on_hold('');
--> statement-breakpoint
-- For a cluster, where the row is on another node than the statement that starts the erasure and has the lock of its own.
create or replace trigger user_erasures_lock before insert on user_erasures for each row execute function lock_user_data();
--> statement-breakpoint
create or replace trigger user_states_erasure before insert on user_states for each row execute function refuse_while_erased();
create or replace trigger user_states_hold before delete on user_states for each row execute function refuse_on_hold('');
--> statement-breakpoint
create or replace trigger webhook_deliveries_hold before delete on webhook_deliveries for each row execute function refuse_on_hold('');
create or replace trigger webhook_deliveries_job_insert after insert on webhook_deliveries for each row
when (new.status = 'pending') execute function add_delivery_job();
create or replace trigger webhook_deliveries_job_update after update of status on webhook_deliveries for each row
when (new.status = 'pending' and old.status <> 'pending') execute function add_delivery_job();
create or replace trigger webhook_deliveries_job_delete after delete on webhook_deliveries for each row
when (old.status = 'pending') execute function delete_delivery_job();
--> statement-breakpoint
create or replace trigger webhooks_erasure before insert on webhooks for each row execute function refuse_while_erased();
create or replace trigger webhooks_hold before delete on webhooks for each row execute function refuse_on_hold('');
