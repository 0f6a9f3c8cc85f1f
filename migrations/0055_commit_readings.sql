-- What commits have for agents, so that the first model call of a session needs no files. All of it can be read again. A long transaction makes the
-- migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

-- The newest commit of a source: a repository or an upload, with a revision and a branch.
create table source_commit (
  tenant_id uuid not null,
  project_id text collate "C" not null,
  -- The SHA-256 of the source.
  source bytea not null,
  commit text collate "C" not null,
  -- When a reader last saw it.
  seen_at timestamptz(3) not null default now(),
  constraint source_commit_pk primary key (tenant_id, project_id, source),
  constraint source_commit_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint source_commit_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);

create table commit_reading (
  tenant_id uuid not null,
  project_id text collate "C" not null,
  commit text collate "C" not null,
  -- The SHA-256 of what was asked.
  question bytea not null,
  -- A ReadSourceResponse.
  reading bytea not null,
  read_at timestamptz(3) not null default now(),
  constraint commit_reading_pk primary key (tenant_id, project_id, commit, question),
  constraint commit_reading_tenant_fk foreign key (tenant_id) references tenant (id) on delete cascade,
  constraint commit_reading_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);

-- For upkeep, which removes old rows of all tenants.
create index source_commit_seen on source_commit (seen_at);
create index commit_reading_read on commit_reading (read_at);

alter table source_commit enable row level security;
alter table source_commit force row level security;
create policy tenant_only on source_commit to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on source_commit to flotilla_app;
grant select, delete on source_commit to flotilla_system;

alter table commit_reading enable row level security;
alter table commit_reading force row level security;
create policy tenant_only on commit_reading to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on commit_reading to flotilla_app;
grant select, delete on commit_reading to flotilla_system;
