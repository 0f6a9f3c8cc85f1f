-- The image of a workspace, in the row of the session that owns it: resolved once, because a tag may name another image tomorrow. Null: the session
-- began without one, or has not opened its files yet. {"reference": "ghcr.io/acme/dev@sha256:…", "credential": "GHCR_LOGIN", "layers": [{"blob_digest": "sha256:…", …}], "env": ["A=b"]}
alter table session add column image jsonb;

-- The layers that a tenant has shown to have: all bytes came with its own credentials from a registry of its choice. Sandbox machines share layers
-- between tenants, and the configuration of an image can name any digest: a tenant must not reach the layer of another one by its name alone.
create table tenant_layer (
  tenant_id uuid not null,
  diff_id text collate "C" not null,
  shown_at timestamptz(3) not null default now(),
  constraint tenant_layer_pk primary key (tenant_id, diff_id),
  constraint tenant_layer_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);

alter table tenant_layer enable row level security;
alter table tenant_layer force row level security;
create policy tenant_only on tenant_layer to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert on tenant_layer to flotilla_app;
