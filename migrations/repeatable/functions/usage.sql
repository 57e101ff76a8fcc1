-- usage_report: a page of the usage by invocations that were requested in a period, for an application or one user
-- (p_user). Rows are grouped by p_by: any of user, model, version (of the agent), day, hour (in UTC). Keyset
-- pagination: at most p_limit rows after the row p_after: [period, user, model, version].
--
-- A row with a model sums the model answers that are stored as events, at the prices of inspect.invocation_costs. The
-- row without a model counts the invocations, as budgets do, their duration and scores, and the model calls without a
-- stored event: calls of agents that are used as tools, whose own invocations are no rows here, and failed calls. So
-- the totals equal inspect.usage for any grouping. The score of a whole session counts for the session's last
-- invocation. Reads all invocations of the application or user in the period.
create or replace function usage_report(
  p_app text, p_user text, p_from timestamptz, p_to timestamptz, p_by text[], p_after text[], p_limit integer,
  out rows json)
language plpgsql stable as $$
begin
  select coalesce(json_agg(json_strip_nulls(row_to_json(page))), '[]') into rows from (
    select line.period, line."userId", line.model, line.version, sum(line.invocations) as invocations, sum(line.failed) as failed,
      sum(line.calls) as "llmCalls", sum(line.prompt) as "promptTokens", sum(line.output) as "outputTokens",
      sum(line.cost) as cost, sum(line.seconds) as seconds, sum(line.scored) as scored, sum(line.passed) as passed,
      round((percentile_cont(0.95) within group (order by line.seconds::float8) filter (where line.is_run))::numeric, 6)
        as "p95Seconds"
    from (
      select case when 'hour' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD"T"HH24":00:00Z"')
                  when 'day' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD') end as period,
        case when 'user' = any(p_by) then i.user_id end as "userId", case when 'model' = any(p_by) then each.model end as model,
        case when 'version' = any(p_by) then i.agent_version end as version,
        (each.calls is null)::int as invocations, (each.calls is null and i.status in ('failed', 'interrupted'))::int as failed,
        each.calls is null and i.steered_invocation_id is null as is_run,
        coalesce(each.calls, i.llm_calls - named.calls) as calls, coalesce(each.prompt, i.prompt_tokens - named.prompt) as prompt,
        coalesce(each.output, i.output_tokens - named.output) as output, each.cost,
        case when each.calls is null then i.work_ms / 1000.0 else 0 end as seconds,
        case when each.calls is null then scores.scored else 0 end as scored,
        case when each.calls is null then scores.passed else 0 end as passed
      from invocations i
      cross join lateral (
        select coalesce(jsonb_agg(m), '[]') as models, coalesce(sum(m.calls), 0) as calls, coalesce(sum(m.prompt), 0) as prompt,
               coalesce(sum(m.output), 0) as output
        from (
          select e.payload ->> 'modelVersion' as model, count(*) as calls, sum(used.prompt) as prompt,
            sum(used.output) as output,
            sum((used.prompt * price.prompt_price + used.output * price.output_price) / 1000000) as cost
          from events e
          cross join lateral (
            select coalesce((e.payload -> 'usageMetadata' ->> 'promptTokenCount')::numeric, 0) as prompt,
                   coalesce((e.payload -> 'usageMetadata' ->> 'candidatesTokenCount')::numeric, 0)
                     + coalesce((e.payload -> 'usageMetadata' ->> 'thoughtsTokenCount')::numeric, 0) as output) used
          left join lateral (
            select p.prompt_price, p.output_price from model_prices p
            where starts_with(e.payload ->> 'modelVersion', p.model) or p.model = '*'
            order by p.model = '*', length(p.model) desc limit 1) price on true
          where e.app_name = i.app_name and e.user_id = i.user_id and e.session_id = i.session_id
            and e.invocation_id = i.id and e.is_from_runtime and e.payload ? 'usageMetadata'
          group by 1) m) named
      cross join lateral (
        select count(*) as scored, count(*) filter (where r.result ->> 'finalStatus' = 'PASSED') as passed
        from eval_session_scores r
        where r.app_name = i.app_name and r.user_id = i.user_id and r.session_id = i.session_id
          and r.result ->> 'finalStatus' in ('PASSED', 'FAILED')
          and i.id = coalesce(r.invocation_id, (
            select e.invocation_id from events e
            where e.app_name = r.app_name and e.user_id = r.user_id and e.session_id = r.session_id
              and e.sequence = r.last_sequence))) scores
      -- The row without a model comes from the empty object. No union, because a distributed database cannot plan a
      -- union here.
      cross join lateral jsonb_to_recordset('[{}]' || named.models)
        each(model text, calls numeric, prompt numeric, output numeric, cost numeric)
      -- The first condition on the time is that of invocations_app_time_idx.
      where i.app_name = p_app and (p_user is null or i.user_id = p_user) and i.create_time > '-infinity'
        and i.create_time >= p_from and i.create_time < p_to
        -- A message that another invocation took counts as in budgets (take_messages), and what a child used is in its
        -- parent.
        and (i.steered_invocation_id is null or i.count_time is not null)
        and not exists (
          select 1 from sessions s
          where s.app_name = i.app_name and s.user_id = i.user_id and s.id = i.session_id and s.parent_session_id is not null)
    ) line
    where p_after is null
      or (coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C",
          coalesce(line.version, '')) > (p_after[1], p_after[2], p_after[3], p_after[4])
    group by line.period, line."userId", line.model, line.version
    order by coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C", coalesce(line.version, '')
    limit p_limit) page;
end $$;
comment on function usage_report is 'Returns a page of the usage by invocations that were requested in a period, grouped by user, model, version, day or hour.';

-- tokens_cost: what the tokens of an invocation cost by the prices of now, by the rule of inspect.invocation_costs. Null
-- without tokens, or if a model has no price.
-- p_tokens: invocations.model_tokens.
create or replace function tokens_cost(p_tokens jsonb) returns numeric language plpgsql stable as $$
begin
  if p_tokens is null or not exists (select from model_prices) then return null; end if;
  return (
    select case when count(*) = count(price.prompt_price)
                then trim_scale(sum((t.value ->> 0)::numeric * price.prompt_price + (t.value ->> 1)::numeric * price.output_price)
                                / 1000000) end
    from jsonb_each(p_tokens) t
    left join lateral (
      select m.prompt_price, m.output_price from model_prices m
      where starts_with(t.key, m.model) or m.model = '*'
      order by m.model = '*', length(m.model) desc limit 1) price on true);
end $$;
comment on function tokens_cost is 'What the tokens of an invocation cost by the prices of now; null if a model has no price.';
