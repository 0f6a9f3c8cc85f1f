-- Secrets of tenants and projects. The broker seals them, and the key that opens them never reaches Postgres. Only new tables.
-- flotilla_broker reaches these tables and no other, and sees one tenant at a time. Gateways see everything of a secret except its sealed value.
do $$
begin
  create role flotilla_broker nologin;
exception when duplicate_object or unique_violation then null;
end $$;
grant usage on schema public to flotilla_broker;

create table secret (
  tenant_id uuid not null,
  -- null: a secret of the whole tenant.
  project_id text collate "C",
  -- The project, or '': a key has no null.
  scope text collate "C" not null,
  name text collate "C" not null,
  version bigint not null,
  -- Which key of the deployment sealed the key of the value.
  key_id text not null,
  sealed_key bytea not null,
  ciphertext bytea not null,
  created_at timestamptz(3) not null default now(),
  created_by text not null,
  last_used_at timestamptz(3),
  constraint secret_pk primary key (tenant_id, scope, name),
  constraint secret_scope check (scope = coalesce(project_id, '')),
  constraint secret_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint secret_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);

-- The newest version of a secret of each tenant. One counter for all of its secrets: a secret that was deleted and comes back has a higher version
-- than before, so nothing that was made with the old value is taken for the new one. Its row also orders the changes of a tenant.
create table secret_counter (
  tenant_id uuid not null,
  last_version bigint not null,
  constraint secret_counter_pk primary key (tenant_id),
  constraint secret_counter_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);

-- The identity of the key that this deployment seals with: a broker with another key file does not start.
create table secret_key (
  is_only boolean not null default true,
  key_id text not null,
  created_at timestamptz(3) not null default now(),
  constraint secret_key_pk primary key (is_only),
  constraint secret_key_one check (is_only)
);

alter table secret enable row level security;
alter table secret force row level security;
create policy tenant_only on secret to flotilla_app, flotilla_broker
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
alter table secret_counter enable row level security;
alter table secret_counter force row level security;
create policy tenant_only on secret_counter to flotilla_broker
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));

grant select, insert, update on secret, secret_counter to flotilla_broker;
grant select, insert on secret_key to flotilla_broker;
grant select (tenant_id, project_id, scope, name, version, created_at, created_by, last_used_at), delete on secret to flotilla_app;
grant select (tenant_id, project_id), delete on secret to flotilla_system;
