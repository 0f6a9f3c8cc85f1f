-- What a root session and its subtasks may spend together, in 10^-12 US dollars; null: no limit.
alter table session
  add column budget_usd_picos bigint,
  add constraint session_budget_positive check (budget_usd_picos > 0);
