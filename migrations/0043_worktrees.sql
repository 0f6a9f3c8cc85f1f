-- Worktrees: further directories of a project, each with a branch of its own. A session that begins in one belongs to it. Of the table session, only
-- the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

create table worktree (
  tenant_id uuid not null,
  project_id text collate "C" not null,
  id text collate "C" not null,
  name text not null,
  -- The name by which clients know the worktree.
  directory text collate "C" not null,
  -- The branch on which the files of its sessions begin.
  branch text not null,
  created_at timestamptz(3) not null default now(),
  constraint worktree_pk primary key (tenant_id, project_id, id),
  -- The directory first: otherwise look-ups by id could take this index, which would lead them through all worktrees of the tenant.
  constraint worktree_directory_unique unique (directory, tenant_id),
  constraint worktree_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint worktree_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);

alter table worktree enable row level security;
alter table worktree force row level security;
create policy tenant_only on worktree to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on worktree to flotilla_app;

-- No foreign key: the sessions of a worktree stay when it is removed.
alter table session add column worktree_id text collate "C";

-- The sessions of a worktree, last changed first. No session has one yet, so the index is empty.
create index session_worktree on session (tenant_id, worktree_id, updated_at desc, id) where worktree_id is not null;

comment on column session.worktree_id is
  'the worktree in which the session began, or the session above it; null, or a worktree that is gone: it belongs to its project alone';
comment on column session_tombstone.project_name is 'the directory of the session: that of its worktree, or else the name of its project';
