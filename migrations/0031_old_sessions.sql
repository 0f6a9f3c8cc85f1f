-- What old sessions keep: how far the log of a session is compacted, and for how long a tenant keeps sessions that nobody uses.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table session_run add column compacted_seq bigint not null default 0;
comment on column session_run.compacted_seq is
  'events up to this one that a later version replaces are of the kind flotilla.superseded and empty, as far as the log was compacted';

alter table tenant
  -- Days after its last change for which an idle session is kept, with its subtasks and files; 0: for ever; null: as long as the platform says.
  add column keep_idle_days integer,
  -- The same for archived sessions, after they were archived.
  add column keep_archived_days integer;
