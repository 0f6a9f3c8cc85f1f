-- Child sessions, parking, classes and weights, requests to people, and what an operator needs to see.

alter table tenant add column weight integer not null default 1;

-- A child works in the files of its root and answers one tool call of its parent. `rights` holds one list of rules for
-- each ancestor and one of its own: the strictest verdict counts.
alter table session
  add column root_id text collate "C",
  add column depth smallint not null default 0,
  add column parent_message_id text collate "C",
  add column parent_part_id text collate "C",
  add column rights json not null default '[]',
  add constraint session_root_fk foreign key (tenant_id, root_id) references session (tenant_id, id) on delete cascade;
create index session_root on session (tenant_id, root_id) where root_id is not null;

alter table session_run
  add column class smallint not null default 0,
  add column owned_at timestamptz,
  add column waiting_detail text;

-- Operators look at what waits and what is quarantined too. A change of phase is never a HOT update anyway.
drop index session_run_live;
create index session_run_live on session_run (phase, tenant_id) where phase <> 0;

-- What an input says beyond its kind: the answer of a child.
alter table session_input add column body json;

-- What people are asked. The first answer counts.
create table request (
  tenant_id uuid not null,
  id text collate "C" not null,
  session_id text collate "C" not null,
  message_id text collate "C" not null,
  part_id text collate "C" not null,
  call_id text not null,
  asked json not null,
  asked_at timestamptz(3) not null default now(),
  expires_at timestamptz(3),
  answer json,
  answered_by text,
  answered_at timestamptz(3),
  constraint request_pk primary key (tenant_id, id),
  constraint request_session_fk foreign key (tenant_id, session_id) references session (tenant_id, id) on delete cascade
);
create index request_open on request (tenant_id, session_id, id) where answer is null;

alter table request enable row level security;
alter table request force row level security;
create policy tenant_only on request to flotilla_app
  using (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('app.tenant', true), '')::uuid));
grant select, insert, update, delete on request to flotilla_app, flotilla_system;

alter table worker
  add column slots integer not null default 0,
  add column drain_asked boolean not null default false,
  add column version text not null default '';
