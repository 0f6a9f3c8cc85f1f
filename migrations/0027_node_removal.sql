-- What the sandbox must still remove: the files of a deleted session. The transaction of the deletion writes the row, so the files go even if the
-- machine was away, or the gateway died. The row refers to nothing, because it outlives the session, its project and its tenant.
create table node_removal (
  tenant_id uuid not null,
  -- Empty: everything of the tenant.
  session_id text collate "C" not null,
  -- The files are removed under this epoch, so that no loop of the session writes any afterwards.
  epoch bigint not null,
  asked_at timestamptz not null default now(),
  tries integer not null default 0,
  -- When a worker tries next.
  next_at timestamptz not null,
  constraint node_removal_pk primary key (tenant_id, session_id)
);
create index node_removal_due on node_removal (next_at);

alter table node_removal enable row level security;
alter table node_removal force row level security;
create policy tenant_only on node_removal to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on node_removal to flotilla_app, flotilla_system;

-- The name of a deleted session's project, which may be deleted as well while streams still have to tell of the session.
set local lock_timeout = '5s';
alter table session_tombstone add column project_name text;
