-- What model calls cost: one row for each call whose provider reported usage, also if the call failed or was aborted. A row
-- refers to no session: money stays spent when a session or a subtask is deleted.
create table ledger (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  -- Names the call inside its session. Storing the same call again changes nothing.
  id text collate "C" not null,
  -- The root of the session's tree, whose budget the call used.
  root_id text collate "C" not null,
  purpose text not null,
  outcome text not null,
  provider_id text not null,
  model_id text not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  reasoning_tokens bigint not null,
  cache_read_tokens bigint not null,
  cache_write_tokens bigint not null,
  cost_usd_picos bigint not null,
  -- The most that the call could cost when it was sent; null: unknown.
  cost_max_usd_picos bigint,
  created_at timestamptz not null default now(),
  constraint ledger_pk primary key (tenant_id, session_id, id),
  constraint ledger_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint ledger_purpose_known check (purpose in ('step', 'summary', 'title', 'carried_over')),
  constraint ledger_outcome_known check (outcome in ('finished', 'failed', 'aborted'))
);
create index ledger_root on ledger (tenant_id, root_id) include (cost_usd_picos);

-- What existing sessions spent. A step that is open now is added when it closes, as its session's cost is. The owner of the
-- tables is itself bound by forced row-level security, which would hide every session from this statement.
alter table session no force row level security;
insert into ledger (tenant_id, session_id, id, root_id, purpose, outcome, provider_id, model_id, input_tokens, output_tokens,
                    reasoning_tokens, cache_read_tokens, cache_write_tokens, cost_usd_picos)
select tenant_id, id, 'carried-over', coalesce(root_id, id), 'carried_over', 'finished', provider_id, model_id, input_tokens,
       output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens, cost_usd_picos
  from session
 where cost_usd_picos > 0 or input_tokens + output_tokens + reasoning_tokens + cache_read_tokens + cache_write_tokens > 0;
alter table session force row level security;

alter table ledger enable row level security;
alter table ledger force row level security;
create policy tenant_only on ledger to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert on ledger to flotilla_app, flotilla_system;
