-- Work on issues and pull requests of a forge: its App, what it tells us, the tenants' installations, and the jobs that show the work there. Only new tables, and
-- triggers that fire for sessions of pull requests alone. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

-- The App of this deployment at its forge. The broker seals its credentials, as those of a secret.
create table forge_app (
  is_only boolean not null default true,
  -- The number of the App at the forge.
  app_id bigint not null,
  -- The name in the login of its comments: 'flotilla'.
  slug text not null,
  -- Where the API and the pages of the forge begin: 'https://api.github.com', 'https://github.com'.
  api_url text not null,
  web_url text not null,
  version bigint not null,
  key_id text not null,
  sealed_key bytea not null,
  ciphertext bytea not null,
  created_at timestamptz(3) not null default now(),
  created_by text not null,
  constraint forge_app_pk primary key (is_only),
  constraint forge_app_one check (is_only)
);
grant select, insert, update on forge_app to flotilla_broker;
grant select (app_id, slug, api_url, web_url, version, created_at, created_by) on forge_app to flotilla_system;

-- Which tenant has an installation of the App. An installation has one owner.
create table forge_installation (
  tenant_id uuid not null,
  -- Its number at the forge.
  id bigint not null,
  -- The organization or the person at the forge.
  account text not null,
  bound_at timestamptz(3) not null default now(),
  bound_by text not null,
  constraint forge_installation_pk primary key (tenant_id, id),
  constraint forge_installation_one_owner unique (id),
  constraint forge_installation_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);
alter table forge_installation enable row level security;
alter table forge_installation force row level security;
create policy tenant_only on forge_installation to flotilla_app, flotilla_broker
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on forge_installation to flotilla_app;
grant select on forge_installation to flotilla_broker, flotilla_system;
create trigger audit_create_delete after insert or delete on forge_installation for each row
  execute function audit_change('installation', 'tenant_id', 'id,account');
create trigger audit_update after update on forge_installation for each row when (old.account is distinct from new.account)
  execute function audit_change('installation', 'tenant_id', 'id,account');

-- What the forge has told us, until it is processed, and for some days more. It belongs to no tenant before it is processed.
create table forge_delivery (
  -- The id that the forge gives a delivery. A repeated one has the same.
  guid text collate "C" not null,
  seq bigint generated always as identity,
  event text collate "C" not null,
  installation_id bigint,
  -- The repository and the number of what it is about: deliveries of one thread are processed in order. Empty: of no thread.
  thread text collate "C" not null,
  received_at timestamptz(3) not null default now(),
  body bytea not null,
  state smallint not null default 0,
  -- What was done about it, or why nothing was.
  note text not null default '',
  attempts smallint not null default 0,
  -- When it may be tried: while somebody processes it, the time after which another one may.
  due_at timestamptz not null default now(),
  constraint forge_delivery_pk primary key (guid),
  constraint forge_delivery_state check (state between 0 and 3)
);
comment on column forge_delivery.state is '0 new, 1 done, 2 ignored, 3 dead; the store''s DeliveryState';
create index forge_delivery_new on forge_delivery (seq) where state = 0;
create index forge_delivery_new_of_thread on forge_delivery (thread, seq) where state = 0;
create index forge_delivery_seq on forge_delivery (seq);
create index forge_delivery_received on forge_delivery (received_at) where state <> 0;
create index forge_delivery_dead on forge_delivery (installation_id) where state = 3;
grant select, insert, update, delete on forge_delivery to flotilla_system;

-- The session of an issue or a pull request. The pull request that a session has opened has the same session.
create table forge_thread (
  tenant_id uuid not null,
  repository_id bigint not null,
  number bigint not null,
  session_id text collate "C" not null,
  created_at timestamptz(3) not null default now(),
  constraint forge_thread_pk primary key (tenant_id, repository_id, number),
  constraint forge_thread_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);
alter table forge_thread enable row level security;
alter table forge_thread force row level security;
create policy tenant_only on forge_thread to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on forge_thread to flotilla_app;
grant select on forge_thread to flotilla_system;

-- Long work that is no conversation. Each row has an owner while a worker performs it, and an epoch that fences its writes, as the control row of a session. It wakes at
-- `wake_at`, which every input and every change of what it watches sets.
create table job (
  tenant_id uuid not null,
  -- That of what it works on: for a pull request, its session.
  id text collate "C" not null,
  kind text collate "C" not null,
  epoch bigint not null default 0,
  owner uuid,
  -- What the job knows.
  state json not null,
  input_seq bigint not null default 0,
  input_ack bigint not null default 0,
  -- Counts what it has to look at, besides its inputs.
  signals bigint not null default 0,
  -- Failures since the last progress.
  attempts smallint not null default 0,
  -- The last failure; empty: none.
  failure text not null default '',
  wake_at timestamptz,
  created_at timestamptz(3) not null default now(),
  constraint job_pk primary key (tenant_id, id),
  constraint job_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
) with (fillfactor = 70);
create index job_wake on job (wake_at) where wake_at is not null;
create index job_owner on job (owner) where owner is not null;
alter table job enable row level security;
alter table job force row level security;
create policy tenant_only on job to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on job to flotilla_app;
grant select, update on job to flotilla_system;

-- The mailbox of a job. Accepted once for each dedupe key.
create table job_input (
  tenant_id uuid not null,
  job_id text collate "C" not null,
  seq bigint not null,
  dedupe text collate "C" not null,
  body json not null,
  accepted_at timestamptz(3) not null default now(),
  constraint job_input_pk primary key (tenant_id, job_id, seq),
  constraint job_input_dedupe_unique unique (tenant_id, job_id, dedupe),
  constraint job_input_job_fk foreign key (tenant_id, job_id) references job (tenant_id, id) on delete cascade
);
alter table job_input enable row level security;
alter table job_input force row level security;
create policy tenant_only on job_input to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on job_input to flotilla_app;

-- The job of a pull request looks at its session whenever that begins, waits, ends or goes away.
create function wake_job() returns trigger language plpgsql as $$
begin
  update job set signals = signals + 1, wake_at = least(coalesce(wake_at, now()), now())
   where tenant_id = coalesce(new.tenant_id, old.tenant_id) and id = coalesce(new.session_id, old.session_id);
  return null;
end $$;
create trigger wake_job_update after update of phase on session_run for each row
  when (new.class = 1 and old.phase is distinct from new.phase)
  execute function wake_job();
create trigger wake_job_delete after delete on session_run for each row when (old.class = 1)
  execute function wake_job();
