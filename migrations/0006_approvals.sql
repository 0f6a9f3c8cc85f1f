-- What "always" allows beyond one session, and what a session does when a person would have to be asked.

alter table session add column on_ask text not null default 'park';

-- An answer "always" for a project (or, without one, for the whole tenant). It ends the asking; what a rule forbids stays
-- forbidden.
create table approval (
  tenant_id uuid not null references tenant (id) on delete cascade,
  request_id text collate "C" not null,
  project_id text collate "C",
  permission text not null,
  pattern text not null,
  approved_by text not null,
  approved_at timestamptz(3) not null default now(),
  constraint approval_pk primary key (tenant_id, request_id, pattern),
  constraint approval_project_fk foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade
);
create unique index approval_once on approval (tenant_id, coalesce(project_id, ''), permission, pattern);

alter table approval enable row level security;
alter table approval force row level security;
create policy tenant_only on approval to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on approval to flotilla_app, flotilla_system;
