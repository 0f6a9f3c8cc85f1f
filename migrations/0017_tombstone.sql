-- That a session was deleted, for streams that come back later: its own log is gone with it. Nothing of what was said in it.
create table session_tombstone (
  tenant_id uuid not null references tenant (id) on delete cascade,
  session_id text collate "C" not null,
  project_id text collate "C" not null,
  parent_id text collate "C",
  -- Of the session: the event that tells of the deletion would be the next one of its log.
  event_seq bigint not null,
  epoch bigint not null,
  created_at timestamptz not null,
  deleted_at timestamptz not null default now(),
  xid xid8 not null default pg_current_xact_id(),
  constraint session_tombstone_pk primary key (tenant_id, session_id)
);
create index session_tombstone_feed on session_tombstone (tenant_id, xid);
create index session_tombstone_age on session_tombstone (deleted_at);
alter table session_tombstone enable row level security;
alter table session_tombstone force row level security;
create policy tenant_only on session_tombstone to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on session_tombstone to flotilla_app, flotilla_system;
