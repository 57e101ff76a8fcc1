-- A plan for any day expects a third of all rows, and reads the whole table for one day.
alter function budget_uses_of_app(text, date) set plan_cache_mode = 'force_custom_plan';
