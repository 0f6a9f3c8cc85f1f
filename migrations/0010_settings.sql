-- Settings that a tenant, or one of its projects, keeps with us, as they were written: they bind all sessions below them.
create table settings (
  tenant_id uuid not null references tenant (id) on delete cascade,
  -- '' for those of the tenant.
  project_id text collate "C" not null,
  document text not null,
  changed_by text not null,
  changed_at timestamptz(3) not null default now(),
  constraint settings_pk primary key (tenant_id, project_id)
);

alter table settings enable row level security;
alter table settings force row level security;
create policy tenant_only on settings to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on settings to flotilla_app, flotilla_system;
