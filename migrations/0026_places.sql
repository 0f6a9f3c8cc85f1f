-- The places by which clients know a project besides its name: a directory on a client's machine ("/home/me/app"), or the remote of
-- the repository ("example.com/me/app").
create table project_place (
  tenant_id uuid not null references tenant (id) on delete cascade,
  place text collate "C" not null,
  project_id text collate "C" not null,
  constraint project_place_pk primary key (tenant_id, place),
  constraint project_place_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);
create index project_place_project on project_place (tenant_id, project_id);

alter table project_place enable row level security;
alter table project_place force row level security;
create policy tenant_only on project_place to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on project_place to flotilla_app, flotilla_system;
