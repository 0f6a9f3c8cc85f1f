-- Chores that one worker of the whole fleet does from time to time, and when each is due next. They belong to no tenant.
create table chore (
  name text collate "C" not null,
  next_at timestamptz not null,
  constraint chore_pk primary key (name)
);
grant select, insert, update, delete on chore to flotilla_system;
