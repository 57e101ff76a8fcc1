-- budget_uses_of_app: what all users of an application have used since a day. A function of its own, so that a cluster
-- asks all of its nodes for this and one node for the rest of a claim. Planned for its values: a plan for any day
-- expects a third of all rows, and reads the whole table for one day.
create function budget_uses_of_app(app text, since date, out invocations numeric, out tokens numeric, out cost numeric)
language plpgsql stable set plan_cache_mode = 'force_custom_plan' as $$
begin
  select coalesce(sum(u.invocations), 0), coalesce(sum(u.prompt_tokens + u.output_tokens), 0), coalesce(sum(u.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_uses u where u.app_name = app and u.day >= since;
end $$;
comment on function budget_uses_of_app is 'What all users of an application have used since a day: invocations, tokens, cost.';
