-- The sandbox service whose data directory has the files of all sessions, by the id of that directory. Gateways and workers with another one do not start. Until
-- sessions can be on several machines, there is one row. The first service that answers is noted; an operator names a replacement.
create table sandbox_service (
  is_only boolean not null default true,
  id text collate "C" not null,
  noted_at timestamptz not null default now(),
  constraint sandbox_service_pk primary key (is_only),
  constraint sandbox_service_only check (is_only)
);
grant select, insert, update on sandbox_service to flotilla_system;
