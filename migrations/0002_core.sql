-- Tenants, projects, sessions and what a session is made of. Every table of a tenant begins with tenant_id, has it
-- first in its key, and is under forced row-level security. Order is always a sequence, never an id.

create table tenant (
  id uuid not null,
  name text collate "C" not null,
  running_max integer not null,
  created_at timestamptz not null default now(),
  constraint tenant_pk primary key (id),
  constraint tenant_name_unique unique (name)
);

create table api_key (
  tenant_id uuid not null,
  prefix text collate "C" not null,
  secret_sha256 bytea not null,
  name text not null,
  created_at timestamptz not null default now(),
  revoked_at timestamptz,
  constraint api_key_pk primary key (tenant_id, prefix),
  constraint api_key_secret_unique unique (secret_sha256),
  constraint api_key_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);

create table project (
  tenant_id uuid not null,
  id text collate "C" not null,
  name text collate "C" not null,
  source json not null,
  created_at timestamptz not null default now(),
  constraint project_pk primary key (tenant_id, id),
  constraint project_name_unique unique (tenant_id, name),
  constraint project_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);

-- Uploaded git bundles, in pieces; complete once every byte is there and the hash is right.
create table bundle (
  tenant_id uuid not null,
  id text collate "C" not null,
  size_bytes bigint not null,
  complete boolean not null default false,
  created_at timestamptz not null default now(),
  constraint bundle_pk primary key (tenant_id, id),
  constraint bundle_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade
);

create table bundle_piece (
  tenant_id uuid not null,
  bundle_id text collate "C" not null,
  piece integer not null,
  data bytea not null,
  constraint bundle_piece_pk primary key (tenant_id, bundle_id, piece),
  constraint bundle_piece_bundle_fk foreign key (tenant_id, bundle_id) references bundle (tenant_id, id) on delete cascade
);
alter table bundle_piece alter column data set storage external;

-- The descriptive row of a session; changes seldom. The hot one is session_run. Times are whole milliseconds, as in
-- OpenCode's JSON, so that a cursor made of one is exact.
create table session (
  tenant_id uuid not null,
  id text collate "C" not null,
  project_id text collate "C" not null,
  parent_id text collate "C",
  title text not null,
  agent text not null,
  provider_id text not null,
  model_id text not null,
  source json not null,
  dedupe text collate "C",
  last_outcome text,
  last_error text,
  todos json,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  reasoning_tokens bigint not null default 0,
  cache_read_tokens bigint not null default 0,
  cache_write_tokens bigint not null default 0,
  cost_usd_picos bigint not null default 0,
  created_at timestamptz(3) not null default now(),
  updated_at timestamptz(3) not null default now(),
  archived_at timestamptz(3),
  constraint session_pk primary key (tenant_id, id),
  constraint session_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade,
  constraint session_parent_fk foreign key (tenant_id, parent_id) references session (tenant_id, id) on delete cascade
);
create unique index session_dedupe_unique on session (tenant_id, dedupe) where dedupe is not null;
create index session_updated on session (tenant_id, updated_at desc, id);
create index session_parent on session (tenant_id, parent_id) where parent_id is not null;

-- The control row: who may write the session, and whether it needs a worker. Updated at every write of the loop,
-- so only phase and wake_at are indexed: every other update stays on its page.
create table session_run (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  epoch bigint not null default 0,
  write_seq bigint not null default 0,
  event_seq bigint not null default 0,
  input_seq bigint not null default 0,
  input_ack bigint not null default 0,
  cancel_seq bigint not null default 0,
  phase smallint not null default 0,
  owner uuid,
  attempts smallint not null default 0,
  queued_at timestamptz,
  wake_at timestamptz,
  waiting_reason text,
  constraint session_run_pk primary key (tenant_id, session_id),
  constraint session_run_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index session_run_live on session_run (phase, tenant_id) where phase in (1, 2);
create index session_run_wake on session_run (wake_at) where wake_at is not null;

-- The mailbox of a session: what its loop must react to. Accepted once for each dedupe key.
create table session_input (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  seq bigint not null,
  kind text not null,
  dedupe text collate "C" not null,
  body_sha256 bytea not null,
  message_id text collate "C",
  traceparent text,
  accepted_at timestamptz not null default now(),
  constraint session_input_pk primary key (tenant_id, session_id, seq),
  constraint session_input_dedupe_unique unique (tenant_id, session_id, dedupe),
  constraint session_input_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);

-- The log of a session: numbered 1, 2, 3, … by its control row. `properties` is the JSON that clients get, byte for byte.
create table session_event (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  seq bigint not null,
  epoch bigint not null,
  id text collate "C" not null,
  kind text not null,
  properties text not null,
  at timestamptz not null default now(),
  constraint session_event_pk primary key (tenant_id, session_id, seq),
  constraint session_event_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);

create table message (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  id text collate "C" not null,
  seq bigint not null,
  role text not null,
  info json not null,
  constraint message_pk primary key (tenant_id, session_id, id),
  constraint message_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);
create unique index message_seq on message (tenant_id, session_id, seq);

create table part (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  message_id text collate "C" not null,
  id text collate "C" not null,
  seq bigint not null,
  kind text not null,
  data json not null,
  constraint part_pk primary key (tenant_id, session_id, message_id, id),
  constraint part_message_fk foreign key (tenant_id, session_id, message_id)
    references message (tenant_id, session_id, id) on delete cascade
) with (fillfactor = 90);

-- Text as it streams in, insert-only: a part is written once when it is whole, its chunks are what a crash leaves.
create table part_chunk (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  part_id text collate "C" not null,
  epoch bigint not null,
  offset_bytes bigint not null,
  text text not null,
  constraint part_chunk_pk primary key (tenant_id, session_id, part_id, epoch, offset_bytes),
  constraint part_chunk_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);

-- One row for each tool call whose effect may have begun. The intent is here before the effect starts.
create table tool_exec (
  tenant_id uuid not null,
  session_id text collate "C" not null,
  exec_id text collate "C" not null,
  tool text not null,
  epoch bigint not null,
  state text not null,
  started_at timestamptz not null default now(),
  ended_at timestamptz,
  constraint tool_exec_pk primary key (tenant_id, session_id, exec_id),
  constraint tool_exec_state check (state in ('executing', 'done')),
  constraint tool_exec_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);

-- Workers by incarnation: who is alive, by this database's clock.
create table worker (
  incarnation uuid not null,
  name text not null,
  lease_until timestamptz not null,
  draining boolean not null default false,
  started_at timestamptz not null default now(),
  constraint worker_pk primary key (incarnation)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

do $$
declare name text;
begin
  foreach name in array array['api_key', 'project', 'bundle', 'bundle_piece', 'session', 'session_run', 'session_input',
                              'session_event', 'message', 'part', 'part_chunk', 'tool_exec'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    -- The sub-select is evaluated once for a statement; an unset tenant is null and matches nothing.
    execute format($policy$create policy tenant_only on %I to flotilla_app
      using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
      with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))$policy$, name);
    execute format('grant select, insert, update, delete on %I to flotilla_app', name);
  end loop;
end $$;
alter table tenant enable row level security;
alter table tenant force row level security;
create policy tenant_only on tenant to flotilla_app
  using (id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select on tenant to flotilla_app;
grant select, insert, update, delete on all tables in schema public to flotilla_system;

-- Whether a worker's lease runs, by this database's clock. The tenants' role sees this answer and not the table.
create function worker_alive(incarnation uuid) returns boolean
  language sql stable security definer set search_path = pg_catalog, public
  as $$ select exists (select 1 from public.worker w where w.incarnation = worker_alive.incarnation and w.lease_until > now()) $$;
revoke execute on function worker_alive(uuid) from public;
grant execute on function worker_alive(uuid) to flotilla_app, flotilla_system;
