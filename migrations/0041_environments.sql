-- The environments that repositories propose, and whether an admin of the tenant has allowed them. Only a new table.
create table proposed_environment (
  tenant_id uuid not null,
  project_id text collate "C" not null,
  -- SHA-256 of the document, lower-case hexadecimal.
  digest text collate "C" not null,
  -- The file of the repository.
  file text not null,
  -- {"environment": {…}}, as the worker read it from the file.
  document text not null,
  -- What the file has and Flotilla does not use.
  unused text[] not null,
  -- The session that first had it. It may be gone.
  session_id text collate "C" not null,
  -- In microseconds, as decided_at: their order counts.
  proposed_at timestamptz not null default now(),
  -- null: it waits for an admin.
  is_allowed boolean,
  decided_by text,
  decided_at timestamptz,
  constraint proposed_environment_pk primary key (tenant_id, project_id, digest),
  constraint proposed_environment_decision check ((is_allowed is null) = (decided_by is null) and (is_allowed is null) = (decided_at is null)),
  constraint proposed_environment_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint proposed_environment_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);

alter table proposed_environment enable row level security;
alter table proposed_environment force row level security;
create policy tenant_only on proposed_environment to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on proposed_environment to flotilla_app, flotilla_system;
