-- A function, so that a distributed database asks all of its nodes for this and one of them for all else of a claim.
create function budget_uses_of_app(app text, since date, out invocations numeric, out tokens numeric, out cost numeric)
language plpgsql stable as $$
begin
  select coalesce(sum(u.invocations), 0), coalesce(sum(u.prompt_tokens + u.output_tokens), 0), coalesce(sum(u.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_uses u where u.app_name = app and u.day >= since;
end $$;
--> statement-breakpoint
comment on function budget_uses_of_app(text, date) is 'What all users of an application have used since a day: invocations, tokens, cost.';
